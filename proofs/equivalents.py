"""Mutants that no proof can kill, because they behave as the function itself does, and why.

Promises  each is still a mutant that exists; one that is killed after all, or gone, fails a test.
Never     excuses a hole: what a proof could tell apart is not here.
"""

_TEXT = "a number in the text of a refusal"
_NOBODY = "groups count from 1, who reads alone is below 0: nobody owns 0"
_LOG_IS_NAMED = "a copy goes to the log that is named beside it, whatever partition it says"
_CAPPED = "min(RETRY_CAP_MS, RETRY_FIRST_MS << doublings)"

EQUIVALENT = {
    "backoff_ms: doublings >= 6 → doublings > 6": "at six doublings the minimum gives the cap as well",
    "backoff_ms: 6 → 7 in doublings >= 6": "at six doublings the minimum gives the cap as well",
    f"backoff_ms: RETRY_CAP_MS → RETRY_CAP_MS + 1 in {_CAPPED}": "below six doublings the cap is not reached",
    f"backoff_ms: RETRY_CAP_MS → RETRY_CAP_MS - 1 in {_CAPPED}": "below six doublings the cap is not reached",
    "add: 1 → 2 in intervals[-1][1] + 1": "the short way for a range behind all others gives what the long one gives",
    "shrink: 0 → -1 in in_flight >= 0": "a check of what is proved: nobody has less in flight than the lease holds",
    "_cut_below: first < offset → first <= offset": "taking nothing from a lease leaves it as it is",
    "_find_topic: count - 1 → count + 1": _TEXT,
    "_find_topic: 1 → 2 in count - 1": _TEXT,
    "_find_topic: 1 → 0 in count - 1": _TEXT,
    "_record_bounds: end - start → end + start": _TEXT,
    "stored: turn.stored_lsn <= lsn < turn.lsn → turn.stored_lsn <= lsn <= turn.lsn": "`written` checks it again",
    "debt_ms: 0 → 1 in tokens <= 0": "with one thousandth in the bucket the formula gives 0 as well",
    "sticky: 0 → 1 in dict.fromkeys(_everybody(topics), 0)": "only the differences of loads are looked at",
    "sticky: 0 → -1 in dict.fromkeys(_everybody(topics), 0)": "only the differences of loads are looked at",
    "_log_trimmed: 0 → -1 in intervals.remove(durable.removed[record.log], 0, record.start - 1)": "offsets begin at 0",
    "awaken: 0 → -1 in put(jobs, 0, (REPLAY, number, 0))": "both instants are in the first bucket",
    "judge: 0 → -1 in batch.producer_id < 0": "a batch without a producer id is of no producer that is known",
    "read_frame: VERSION → VERSION + 1 in {VERSION}": _TEXT,
    "read_frame: VERSION → VERSION - 1 in {VERSION}": _TEXT,
    "entry_at: ENTRY_VERSION → ENTRY_VERSION + 1 in {ENTRY_VERSION}": _TEXT,
    "entry_at: ENTRY_VERSION → ENTRY_VERSION - 1 in {ENTRY_VERSION}": _TEXT,
    "entry_at: BATCH_HEADER_BYTES → BATCH_HEADER_BYTES + 1 in {BATCH_HEADER_BYTES}": _TEXT,
    "entry_at: BATCH_HEADER_BYTES → BATCH_HEADER_BYTES - 1 in {BATCH_HEADER_BYTES}": _TEXT,
    "read_header: HEADER_BYTES → HEADER_BYTES + 1 in {HEADER_BYTES}": _TEXT,
    "read_header: HEADER_BYTES → HEADER_BYTES - 1 in {HEADER_BYTES}": _TEXT,
    "read_header: MAGIC → MAGIC + 1 in {MAGIC}": _TEXT,
    "read_header: MAGIC → MAGIC - 1 in {MAGIC}": _TEXT,
    "read_header: _BATCH_LENGTH_MIN → _BATCH_LENGTH_MIN + 1 in {_BATCH_LENGTH_MIN}": _TEXT,
    "read_header: _BATCH_LENGTH_MIN → _BATCH_LENGTH_MIN - 1 in {_BATCH_LENGTH_MIN}": _TEXT,
    "copied: dying.owner > 0 → dying.owner >= 0": _NOBODY,
    "copied: 0 → -1 in dying.owner > 0": _NOBODY,
    "copied: 0 → 1 in Publish(topic.name, 0, answer.handle, 1, answer.size_bytes, ())": _LOG_IS_NAMED,
    "copied: 0 → -1 in Publish(topic.name, 0, answer.handle, 1, answer.size_bytes, ())": _LOG_IS_NAMED,
    "deliver: to.owner > 0 → to.owner >= 0": _NOBODY,
    "deliver: 0 → -1 in to.owner > 0": _NOBODY,
    "trim: owner > 0 → owner >= 0": _NOBODY,
    "trim: 0 → -1 in owner > 0": _NOBODY,
}
