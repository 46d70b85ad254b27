"""Dead letters: why each is there, and what becomes of those that an operator replays or removes.

Promises  a dead letter has its original's bytes, a cause, and is alone (I-DEAD); a replay that was promised comes, and
          none of what was removed (I-REPLAY).
Never     takes the entry's own word for its cause.
"""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.core import batch
from dovetail.sim.checkers.contents import Contents
from dovetail.sim.checkers.entries import parse_id
from dovetail.sim.checkers.ground import POISON_MEMBERS, Ground
from dovetail.sim.checkers.readers import Readers


class DeadLetters:
    """What is dead, removed, or to be replayed."""

    def __init__(self, ground: Ground, readers: Readers, contents: Contents) -> None:
        self._ground = ground
        self._readers = readers
        self._contents = contents
        self.purged: set[tuple[str, int]] = set()
        """Dead letters that were removed for good."""
        self.replays_owed: dict[tuple[str, int], tuple[str, bytes, int]] = {}
        """For each dead letter whose replay was promised: its topic, its bytes, and how often it must be there."""

    def seen(self, record: batch.Record) -> None:
        """A record of a log of dead letters."""
        headers = {key: (value or b"").decode() for key, value in record.headers}
        log, offset = parse_id(headers["dovetail-id"])
        group = headers["dovetail-group"]
        where = f"{log[0]}:{log[1]}:{offset} of {group}"
        ground, judge = self._ground, self._ground.judge
        ground.rows.note(
            "world",
            "dead",
            topic=log[0],
            partition=log[1],
            lane=log[2],
            first=offset,
            last=offset,
            group=group,
            values=(ground.rows.number(record.value or b""),),
        )
        original = self._contents.log(log).content.get(offset)
        if original is not None:
            judge("I-DEAD", original == record.value, f"the dead letter of {where} has other bytes")
        if not group:
            # It died at a lone session: which one, its letter does not say.
            return
        reader = self._readers.reader(group, log)
        message = reader.at(offset)
        message.dead += 1
        hold = message.hold
        failures = message.failures + (hold is not None and (not message.over or hold.is_due(ground.now_us)))
        cause = message.rejected or failures >= ground.attempts(log[0])[0] or message.excused or reader.sought_us >= 0
        is_buried = log[0] in ground.buries and (record.value or b"") in self._contents.mortal
        cause = cause or len(message.called_poison) >= POISON_MEMBERS or is_buried
        judge("I-DEAD", cause, f"{where} is a dead letter, but at most {failures} attempts failed")
        alone = message.dead == 1 or message.excused or reader.sought_us >= 0
        judge("I-DEAD", alone, f"{where} is in the dead letters {message.dead} times")

    def replaying(self, items: Iterable[tuple[str, int, str]]) -> None:
        """An operator asks for dead letters to be replayed: dead-letter topic, offset, and where each goes."""
        for dead, offset, topic in items:
            value = self._value(dead, offset)
            values = (self._ground.rows.number(value),)
            self._ground.rows.note("operator", "replay asked", topic=topic, first=offset, values=values)
            offered = self._contents.offered.setdefault(topic, {})
            offered[value] = offered.get(value, 0) + 1
            self._contents.once.discard(value)
            self._contents.expires_at_ms.pop(value, None)

    def replayed(self, items: Iterable[tuple[str, int, str]], *, ok: bool) -> None:
        """The answer to that."""
        for dead, offset, topic in items:
            value = self._value(dead, offset)
            self._ground.rows.note("operator", "replay" if ok else "replay refused", topic=topic, first=offset)
            if ok:
                gone = (dead, offset) in self.purged
                self._ground.judge("I-REPLAY", not gone, f"{dead}: offset {offset} is replayed, but was removed")
                again = (dead, offset) in self.replays_owed
                self._ground.judge("I-REPLAY", not again, f"{dead}: offset {offset} is replayed twice")
                self.replays_owed[dead, offset] = (topic, value, self._copies(topic, value) + 1)
            else:
                self._contents.offered[topic][value] -= 1

    def topic_deleted(self, topic: str) -> None:
        """Nothing is owed to it any more."""
        for place in [place for place, owed in self.replays_owed.items() if owed[0] == topic]:
            del self.replays_owed[place]

    def replays_left(self) -> list[str]:
        """Replays that were promised and have not come, in words."""
        left: dict[str, int] = {}
        for (dead, _), (topic, value, count) in self.replays_owed.items():
            if self._copies(topic, value) < count:
                left[dead] = left.get(dead, 0) + 1
        return [f"{count} dead letters of {dead} were to be replayed and have not come" for dead, count in left.items()]

    def check_settled(self) -> None:
        """No message was both acknowledged for good and made a dead letter (I-DEAD)."""
        for (group, topic, partition, lane), reader in self._readers.all.items():
            for offset, message in reader.messages.items():
                both = message.dead > 0 and message.acked_us >= 0 and not message.excused and reader.sought_us < 0
                self._ground.judge(
                    "I-DEAD", not both, f"{topic}:{partition}.{lane}:{offset} of {group} is acknowledged and dead"
                )

    def _value(self, dead: str, offset: int) -> bytes:
        return self._contents.logs[dead, 0, 0].content[offset]

    def _copies(self, topic: str, value: bytes) -> int:
        return self._contents.copies.get(topic, {}).get(value, 0)
