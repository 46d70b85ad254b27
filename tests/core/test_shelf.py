"""What is held in memory: never less than the logs' files lack, never more than it may be, always neighbours."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.core.journal_format import Entry
from dovetail.core.records import BatchAppended
from dovetail.core.shelf import ENTRY_BYTES, Shelf
from tests.depth import DEPTH

DELAYED = 3
"""The log in which everything is delayed; in the others nothing is."""
TAIL_BYTES_MAX, READ_BYTES_MAX = 3 * ENTRY_BYTES, 2 * ENTRY_BYTES

ADD = st.tuples(st.just("add"), st.integers(1, DELAYED), st.integers(1, 3), st.integers(1, 400))
WRITTEN = st.tuples(st.just("written"), st.integers(0, 5), st.just(0), st.just(0))
READ = st.tuples(st.just("read"), st.integers(1, 2), st.integers(0, 3), st.integers(0, 2))


def entry(log: int, base: int, count: int, size: int) -> Entry:
    deliver_at_ms = 5 if log == DELAYED else 0
    return Entry(BatchAppended(log, base, count, 1, deliver_at_ms, 0, 0, size, -1, -1, -1, 0), b"", b"x" * size)


def cost(entries: list[Entry]) -> int:
    return sum(each.size_bytes + ENTRY_BYTES for each in entries)


class Naive:
    """The same promises kept with lists."""

    def __init__(self) -> None:
        self.tails: list[tuple[int, Entry]] = []
        self.reads: list[list[Entry]] = []
        self.written = 0

    def shed(self) -> None:
        self.tails = [(lsn, each) for lsn, each in self.tails if lsn > self.written or each.record.log != DELAYED]
        while cost([each for _, each in self.tails]) > TAIL_BYTES_MAX:
            oldest = next((pair for pair in self.tails if pair[1].record.log != DELAYED), None)
            if oldest is None or oldest[0] > self.written:
                break
            self.tails.remove(oldest)

    def keep(self, entries: list[Entry]) -> None:
        place = (entries[0].record.log, entries[0].base)
        self.reads = [each for each in self.reads if (each[0].record.log, each[0].base) != place] + [entries]
        while len(self.reads) > 1 and sum(map(cost, self.reads)) > READ_BYTES_MAX:
            del self.reads[0]

    def entries(self, log: int, offset: int, bytes_max: int) -> tuple[Entry, ...]:
        runs = [[each for _, each in self.tails if each.record.log == log]]
        runs += [each for each in self.reads if each[0].record.log == log]
        for run in runs:
            found: list[Entry] = []
            for each in run:
                begins = not found and each.base <= offset <= each.last
                fits = found and each.base == found[-1].last + 1 and sum(e.size_bytes for e in found) < bytes_max
                if begins or (fits and sum(e.size_bytes for e in [*found, each]) <= bytes_max):
                    found.append(each)
                elif found:
                    break
            if found:
                return tuple(found)
        return ()


@settings(deadline=None, max_examples=60 * DEPTH)
@given(st.lists(ADD | WRITTEN | READ, max_size=25), st.integers(1, 900))
def test_a_shelf_holds_what_the_files_lack_and_as_much_else_as_it_may(
    said: list[tuple[str, int, int, int]], bytes_max: int
) -> None:
    shelf, naive = Shelf(TAIL_BYTES_MAX, READ_BYTES_MAX), Naive()
    ends = dict.fromkeys(range(1, DELAYED + 1), 0)
    lsn = 0
    for what, number, count, size in said:
        if what == "add":
            lsn += 1
            added = entry(number, ends[number], count, size)
            ends[number] += count
            shelf.add(lsn, added)
            naive.tails.append((lsn, added))
            naive.shed()
        elif what == "written":
            naive.written = max(naive.written, lsn - number)
            shelf.written_behind(naive.written)
            naive.shed()
        else:
            # What is read back may have gaps, where compaction took everything.
            read = [entry(number, base, 1, 100 + base) for base in (count, count + 1, count + 2 + size)]
            shelf.keep_read(number, tuple(read))
            naive.keep(read)
        assert shelf.bytes_pinned_at_most == cost([each for _, each in naive.tails])
        for log, end in ends.items():
            for offset in range(max(end, 8) + 1):
                assert shelf.entries(log, offset, bytes_max) == naive.entries(log, offset, bytes_max)


def test_nothing_that_was_read_back_is_nothing_to_keep() -> None:
    shelf = Shelf(TAIL_BYTES_MAX, READ_BYTES_MAX)
    shelf.keep_read(1, ())
    assert shelf.entries(1, 0, 100) == ()
