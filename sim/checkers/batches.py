"""Stored batches that leave the broker, with a delivery or for whoever reads a log.

Promises  every record of every batch is looked at, a batch that left before like this once; a read is dense, and
          nothing that was confirmed is missing, nor anything shown that is past the end (I-DENSE, I-LOST, I-STORED).
Never     trusts a batch's header for what its records are.
"""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.core import batch, wire
from dovetail.runtime.storage.codecs import CODECS
from dovetail.sim.checkers.contents import Contents
from dovetail.sim.checkers.dead_letters import DeadLetters
from dovetail.sim.checkers.entries import Asked, Line, Log, LogKey
from dovetail.sim.checkers.ground import Ground
from dovetail.sim.checkers.repairs import Repairs

Fresh = tuple[int, bytes, list[batch.Record]]
"""Where a batch begins, its bytes, its records."""


class Batches:
    """Looks into what leaves."""

    def __init__(self, ground: Ground, contents: Contents, dead_letters: DeadLetters, repairs: Repairs) -> None:
        self._ground = ground
        self._contents = contents
        self._dead_letters = dead_letters
        self._repairs = repairs

    def look(self, known: Log, batches: bytes) -> list[Fresh]:
        """Stored batches that have not left the broker before like this."""
        new: list[Fresh] = []
        for header, data in batch.split(batches):
            if known.verified.get(header.base_offset) != data:
                records = list(batch.parse(data, codecs=CODECS))
                for record in records:
                    known.numbers[record.offset] = self._ground.rows.number(record.value or b"")
                new.append((header.base_offset, data, records))
        return new

    def verify(self, log: LogKey, known: Log, new: Iterable[Fresh]) -> None:
        """Judge their contents."""
        is_dead = log[0].endswith(".dlq")
        for base, data, records in new:
            for record in records:
                self._contents.know(log, known, record.offset, record.value or b"")
                if is_dead:
                    self._dead_letters.seen(record)
            known.verified[base] = data

    def fetched(self, line: Line, request: wire.Fetch, answer: wire.FetchAnswer, asked: Asked) -> None:
        """A read of a log."""
        log = self._ground.read(request)
        known = self._contents.log(log)
        new = self.look(known, answer.batches)
        self._note(line, log, known, answer, asked)
        self.verify(log, known, new)
        confirmed_end = asked.held[0]
        self._ground.judge(
            "I-LOST",
            answer.end >= confirmed_end or self._repairs.has_lost_of(log),
            f"{log} ends at {answer.end}, but offsets up to {confirmed_end - 1} were confirmed",
        )
        expected = max(request.offset, answer.start)
        for header, _ in batch.split(answer.batches):
            shown = header.last_offset < answer.end
            self._ground.judge("I-STORED", shown, f"{log}: {header.last_offset} was read, the log ends at {answer.end}")
            covers = header.base_offset <= expected <= header.last_offset
            dense = covers or self._repairs.explain(log, expected, header)
            self._ground.judge("I-DENSE", dense, f"{log}: offset {expected} is missing before {header.base_offset}")
            expected = header.last_offset + 1

    def _note(self, line: Line, log: LogKey, known: Log, answer: wire.FetchAnswer, asked: Asked) -> None:
        """What a log was said to hold, and each batch of it that was read."""
        note = self._ground.rows.note
        about = {"topic": log[0], "partition": log[1], "lane": log[2], "connection": line.number, "asked": asked.seq}
        note(line.name, "extent", first=answer.start, last=answer.end - 1, **about)
        for header, _ in batch.split(answer.batches):
            first, last = header.base_offset, header.last_offset
            values = tuple([known.numbers.get(offset, -1) for offset in range(first, last + 1)])
            note(line.name, "read", first=first, last=last, values=values, **about)
