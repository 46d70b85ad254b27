"""Mechanical mutants that nothing can notice, because the broker does the same with them, and why.

Promises  each is still a mutant that exists: one whose function says something else now fails a test.
Never     excuses a hole: what a test could tell apart is not here.
"""

_OWNER = "no owner is 0: groups are counted from 1, and a session's own subscriptions belong to minus its number"

EQUIVALENT = {
    "core.batch._alike: at + most * size → at - most * size": "speed alone: where the records would go on behind the "
    "section's end, the first column that is compared is too short",
    "core.batch._alike: at + most * size → at - most * size #2": "speed alone: no column is as long as it must be, and "
    "records are compared one by one",
    "core.batch._place: delta >= 0 → delta > 0": "speed alone: the first record's place is read once more, by the "
    "careful reader, which says the same of whatever the quick one took",
    "core.batch._shape: 128 → 129 in section[at] < 128": "speed alone: where it matters, the next condition finds that "
    "the length's first byte is not its last, so that no shape is known and the next record is read with every check",
    "core.batch._skim: low & 127 → low | 127 #3": "speed alone: `low` is 128 or more here, so that the size gets odd, "
    "which is what a negative one looks like, and the record is read by the careful reader",
    "core.batch._walk: delta <= varint.SMALL_MAX → delta < varint.SMALL_MAX": "speed alone: record 8,191 is read with "
    "every check instead of compared with its neighbour",
    "core.dispatch._keep_up: owner > 0 → owner >= 0": _OWNER,
    "core.flow._lags: owner > 0 → owner >= 0": _OWNER,
    "core.intervals.add: 1 → 2 in intervals[-1][1] + 1": "a shortcut: the way that goes on gives the same",
    "core.leases.deliver: to.owner > 0 → to.owner >= 0": _OWNER,
    "core.rebalance.disturb: 0 → 1 in (timers.GATHER, number, 0)": "nobody reads the third part of this timer, and "
    "none is ever cleared by it",
    "core.turn.Turn.fail: owner > 0 → owner >= 0": _OWNER,
    "runtime.storage.scan._Scanner._enter: header.first_lsn > self.lsn → header.first_lsn >= self.lsn": "where both "
    "are the same, so is what is chosen by it",
    "runtime.storage.scan.frames_after: 0 → 1 in whole_frames(data, 0, lsn + 1, salt)": "the first bytes of a "
    "segment are its header's: no frame that was written begins there",
    "runtime.storage.tools._dump_log: 1 → 2 in 1 << 20": "it reads twice as much of a file at a time, and "
    "shows the same",
}
