"""Proofs about the files of journal and logs: when one is full, where a search begins, what damage means."""

from __future__ import annotations

from itertools import pairwise

from dovetail.core import files, retention
from dovetail.core.files import Loss
from dovetail.core.records import TopicConfig
from dovetail.core.retention import PartInfo
from dovetail.proofs.engine import Given, every, implies, negated, some
from dovetail.proofs.registry import proof
from dovetail.proofs.shapes import same

POINTS = "bounded: an index of up to 4 points, any integers in them"


def _ascending(given: Given, *, strictly: bool) -> list[int]:
    values = [given.integer(f"value_{place}") for place in range(given.choice("points", range(5)))]
    given.assume(every(True, *(left < right if strictly else left <= right for left, right in pairwise(values))))
    return values


@proof("I-INDEX", about=files.last_up_to, scope=POINTS, sabotage=("bisect_right(values, sought, key=key) - 1", "0"))
def a_search_for_an_offset_begins_at_the_last_point_not_behind_it(given: Given) -> bool:
    """The point found is not behind what is sought, the one after it is; where all are behind, there is none."""
    values, sought = _ascending(given, strictly=True), given.integer("sought")
    place = given.call(files.last_up_to, values, sought)
    before = [value <= sought for value in values[: place + 1]]
    after = [value > sought for value in values[place + 1 :]]
    return -1 <= place < len(values) and every(True, *before, *after)


@proof("I-INDEX", about=files.last_before, scope=POINTS, sabotage=("bisect_left", "bisect_right"))
def a_search_for_a_time_begins_before_everything_of_that_time(given: Given) -> bool:
    """Arrival times may repeat: the point found arrived before the time, and all after it did not."""
    values, sought = _ascending(given, strictly=False), given.integer("sought")
    place = given.call(files.last_before, values, sought)
    before = [value < sought for value in values[: place + 1]]
    after = [value >= sought for value in values[place + 1 :]]
    return -1 <= place < len(values) and every(True, *before, *after)


@proof("I-SEGMENT", about=files.is_full, sabotage=("used_bytes > empty_bytes and ", ""))
def a_file_is_left_when_the_next_does_not_fit(given: Given) -> bool:
    """What begins a new file would not have fitted, what does not fits or is alone in its file; and a file that holds
    nothing is never left, so that no commit is too large."""
    used, empty, more, most = (given.integer(name, 0) for name in "used empty more most".split())
    given.assume(empty <= used)
    full = given.call(files.is_full, used, empty, more, most)
    return every(
        implies(full, every(used + more > most, used > empty)),
        implies(negated(full), some(used + more <= most, used == empty)),
    )


@proof(
    "I-SEGMENT",
    about=files.is_part_full,
    through=(files.is_full,),
    sabotage=("used_bytes > 0 and age_ms", "age_ms"),
)
def a_part_is_left_when_it_is_too_large_or_too_old(given: Given) -> bool:
    """A part that holds something is left exactly when the entry does not fit or comes too late; an empty one never."""
    used, more, most, age, age_max = (given.integer(name) for name in "used more most age age_max".split())
    given.assume(every(used >= 0, more >= 0))
    full = given.call(files.is_part_full, used, more, most, age, age_max)
    return same(full, every(used > 0, some(used + more > most, age > age_max)))


@proof("I-SEGMENT", about=files.is_spent, sabotage=("covered_lsn + 1", "covered_lsn + 2"))
def a_segment_goes_only_when_a_checkpoint_covers_all_of_it(given: Given) -> bool:
    """Every frame of a segment that goes is covered: its lsns end before the next segment's first. One that could go
    does."""
    first, covered, lsn = given.integer("next_first"), given.integer("covered"), given.integer("lsn")
    spent = given.call(files.is_spent, first, covered)
    return every(implies(every(spent, lsn < first), lsn <= covered), implies(first - 1 <= covered, spent))


@proof("I-TORN", about=files.judge_loss, sabotage=("synced_lsn >= lsn", "synced_lsn > lsn"))
def what_was_synced_is_never_taken_for_torn(given: Given) -> bool:
    """A frame at or below what is known to be synced, or in a file that was cut behind our back, is lost unless a
    checkpoint covers it, and recovery says so; a frame that nobody was promised is never called lost."""
    lsn, covered, synced = given.integer("lsn"), given.integer("covered"), given.integer("synced")
    is_cut, is_begun = given.either("is_cut"), given.either("is_begun")
    loss = given.call(files.judge_loss, lsn, covered, synced, is_cut, is_begun)
    promised = some(lsn <= synced, is_cut)
    return every(
        implies(every(promised, lsn > covered), loss == Loss.LOST),
        implies(negated(promised), loss != Loss.LOST),
        same(loss == Loss.UNNEEDED, lsn <= covered),
    )


@proof("I-TORN", about=files.judge_loss, sabotage=("if is_begun", "if not is_begun"))
def the_end_of_a_journal_is_no_damage(given: Given) -> bool:
    """Where nothing was begun and nothing promised the journal ends; what was begun and not promised is cut."""
    lsn, covered, synced = given.integer("lsn"), given.integer("covered"), given.integer("synced")
    is_begun = given.either("is_begun")
    given.assume(every(lsn > covered, lsn > synced))
    loss = given.call(files.judge_loss, lsn, covered, synced, False, is_begun)
    return every(same(loss == Loss.CUT, is_begun), same(loss == Loss.NONE, negated(is_begun)))


PARTS = "bounded: a log of 1 to 3 parts; sizes, offsets, times and limits any integers"


def _parts(given: Given) -> list[PartInfo]:
    """Parts one behind the other, none of them empty."""
    base, arrived = given.integer("base", 0), given.integer("arrived")
    found = []
    for place in range(given.choice("parts", (1, 2, 3))):
        end, size = given.integer(f"end_{place}"), given.integer(f"size_{place}", 1)
        last = given.integer(f"last_arrival_{place}")
        given.assume(every(base < end, arrived <= last))
        found.append(PartInfo(base, end, size, arrived, last))
        base, arrived = end, last
    return found


def _gone(given: Given, parts: list[PartInfo], start: int) -> list[PartInfo]:
    """The parts below a start, which must be the beginning of one or the end of all."""
    count = sum(1 for part in parts if part.end <= start)
    boundary = parts[count].base if count < len(parts) else parts[-1].end
    if start != boundary:
        raise ValueError("a start inside a part")
    return parts[:count]


@proof("I-RETAIN", about=retention._by_floor, scope=PARTS, sabotage=("part.end > floor", "part.base > floor"))
def on_ack_a_part_goes_when_every_group_is_past_it(given: Given) -> bool:
    """What may go on ack are the parts wholly below the lowest floor: all of them, and no other."""
    parts, floor = _parts(given), given.integer("floor")
    start = given.call(retention._by_floor, parts, floor)
    gone = len(_gone(given, parts, start))
    return every(True, *(part.end <= floor for part in parts[:gone]), *(part.end > floor for part in parts[gone:]))


@proof("I-RETAIN", about=retention._by_age, scope=PARTS, sabotage=(">= wall_ms - retention_ms", ">= wall_ms"))
def by_age_a_part_goes_when_all_of_it_is_too_old(given: Given) -> bool:
    """A part goes when its last message is older than the limit, and none before it stays; without a limit
    none goes."""
    parts, limit, wall = _parts(given), given.integer("limit", 0), given.integer("wall")
    start = given.call(retention._by_age, parts, limit, wall)
    gone = len(_gone(given, parts, start))
    stays = [wall - part.last_arrival_ms <= limit for part in parts[gone : gone + 1]]
    old = [every(limit > 0, wall - part.last_arrival_ms > limit) for part in parts[:gone]]
    return every(True, *old, *(some(limit == 0, young) for young in stays))


@proof(
    "I-RETAIN",
    about=retention._by_bytes,
    scope=PARTS,
    sabotage=("left - part.size_bytes < bytes_max", "left < bytes_max"),
)
def by_bytes_what_stays_is_what_was_asked_for(given: Given) -> bool:
    """What stays is at least the limit, unless there never was so much, and less than a part more; no limit takes
    nothing."""
    parts, limit = _parts(given), given.integer("limit", 0)
    start = given.call(retention._by_bytes, parts, limit)
    gone = len(_gone(given, parts, start))
    stays = sum(part.size_bytes for part in parts[gone:])
    fewer = stays - parts[gone].size_bytes if gone < len(parts) else 0
    return every(implies(gone > 0, every(limit > 0, stays >= limit)), some(limit == 0, fewer < limit))


@proof("I-RETAIN", about=retention._by_hard_bytes, scope=PARTS, sabotage=("left <= bytes_max", "left < bytes_max"))
def a_hard_limit_takes_all_but_the_part_written_to(given: Given) -> bool:
    """What stays is at most the hard limit, or only the part that is written to; and no more goes than must."""
    parts, limit = _parts(given), given.integer("limit", 0)
    start = given.call(retention._by_hard_bytes, parts, limit)
    gone = len(_gone(given, parts, start))
    stays = sum(part.size_bytes for part in parts[gone:])
    more = stays + parts[gone - 1].size_bytes if gone else 0
    return every(
        gone < len(parts),
        some(limit == 0, stays <= limit, gone == len(parts) - 1),
        implies(gone > 0, every(limit > 0, more > limit)),
    )


@proof(
    "I-RETAIN",
    about=retention._by_count,
    scope=PARTS,
    sabotage=("end - part.end < count_max", "end - part.base < count_max"),
)
def by_count_at_least_so_many_messages_stay(given: Given) -> bool:
    """As many offsets stay as were asked for, unless there never were so many, and less than a part more."""
    parts, limit = _parts(given), given.integer("limit", 0)
    start = given.call(retention._by_count, parts, limit)
    gone = len(_gone(given, parts, start))
    end = parts[-1].end
    fewer = end - parts[gone].end if gone < len(parts) else 0
    return every(implies(gone > 0, every(limit > 0, end - start >= limit)), some(limit == 0, fewer < limit))


@proof(
    "I-RETAIN",
    about=retention.propose,
    through=(retention._by_floor, retention._by_hard_bytes),
    scope="bounded: a log of 1 to 2 parts, limits on ack and of bytes; any integers in them",
    sabotage=("config.retain_on_ack or floor is None", "floor is None"),
)
def a_proposal_without_limits_keeps_what_is_retained(given: Given) -> bool:
    """Where a topic keeps what was acknowledged, and nothing else limits it, there is no proposal, whatever was
    settled; where it does not, everything proposed is below the lowest floor or above the hard limit."""
    parts = _parts(given)[:2]
    floor, hard = given.integer("floor", 0), given.integer("hard", 0)
    on_ack = given.choice("retain_on_ack", (True, False))
    config = TopicConfig(retention_ms=0, retain_on_ack=on_ack, bytes_max_hard=hard)
    found = given.call(retention.propose, 1, parts, config, 0, floor)
    base = parts[0].base
    if found is None:
        return every(implies(hard == 0, True), True if on_ack else parts[0].end > floor)
    return every(
        base < found.start,
        found.hard_start <= found.start,
        some(found.start == found.hard_start, every(not on_ack, found.start <= floor)),
        implies(hard == 0, found.hard_start == base),
    )
