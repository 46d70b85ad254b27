"""What failed and is tried again: which attempt that is, how soon it comes, and how much of it together.

Promises  a failure that was told and taken counts from then on, after a crash that it survived, too (I-ATTEMPTS); a
          later try waits as long as it must, or as its nack asked (I-BACKOFF); what failed twice, and what is at its
          last attempt, goes out message by message (I-POISON).
Never     judges who holds what, or whether it may be tried at all.
"""

from __future__ import annotations

from dovetail.sim.checkers.entries import Hold, Message, Reader
from dovetail.sim.checkers.ground import SLACK_US, Ground

FIRST_US = 1_000_000
CAP_US = 60_000_000


class Retries:
    """Each failure that somebody told of, and each that a deadline tells of."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    def told(self, message: Message, attempt: int, delay_ms: int, asked_us: int, now_us: int) -> None:
        """A nack was taken, and the message is to be tried again."""
        if attempt:
            message.told = (*message.told, (now_us, self._ground.life))
            self._wait(message, asked_us + (delay_ms * 1000 or backoff_us(attempt)))

    def _wait(self, message: Message, until_us: int) -> None:
        message.not_before_us, message.not_before_life = until_us, self._ground.life

    def delivered(self, reader: Reader, message: Message, hold: Hold, offset: int, now_us: int) -> None:
        """It goes out again."""
        before = message.hold
        # What an old client got does not say which attempt it is: 0.
        counted = before is not None and not message.over and 0 < before.attempt == hold.attempt - 1
        if counted and before is not None and before.life == self._ground.life:
            self._wait(message, before.until_us + backoff_us(before.attempt))
        if hold.attempt < 2 or message.excused or reader.seeking or reader.sought_us >= 0:
            return
        ground, at = self._ground, f"{hold.log[0]}:{hold.log[1]}:{offset}"
        early_us = message.not_before_us - now_us - SLACK_US
        waited = early_us <= 0 or message.not_before_life != ground.life
        ground.judge("I-BACKOFF", waited, f"{at} is tried again {early_us // 1000} ms before its time")

    def check_told(self, reader: Reader, message: Message, hold: Hold, offset: int) -> None:
        """Failures that are known for certain are counted (I-ATTEMPTS)."""
        if not message.told or not hold.attempt or message.excused or reader.seeking or reader.sought_us >= 0:
            return
        ground = self._ground
        sure = sum(life == ground.life or at_us < ground.durable_by_life.get(life, -1) for at_us, life in message.told)
        text = f"{hold.log[0]}:{hold.log[1]}:{offset} is at attempt {hold.attempt}, although {sure} have failed"
        ground.judge("I-ATTEMPTS", hold.attempt > sure, text)

    def check_length(self, hold: Hold, first: int, last: int) -> None:
        """A poison message takes no neighbour along (I-POISON)."""
        least, most = self._ground.attempts(hold.log[0])
        if hold.attempt >= 2 and least == most:
            alone = first == last or (hold.attempt < 3 and hold.attempt < most)
            text = f"{hold.log[0]}:{hold.log[1]}:{first}-{last} go out together at attempt {hold.attempt} of {most}"
            self._ground.judge("I-POISON", alone, text)


def backoff_us(failures: int) -> int:
    """How long at least the next try waits."""
    return 0 if failures <= 1 else min(CAP_US, FIRST_US << (failures - 2))
