"""Which members of a ring get the next messages, and how many each.

Promises  nobody without credit is chosen (I-CREDIT); while somebody has credit, somebody is chosen (I-IDLE);
          round-robin deals as if one by one in order of member id, least-loaded as if each message went to whoever
          holds least (I-FAIR); a member in worse health than the best of those with credit is passed over at most of
          its turns.
Never     looks at what is dealt.
"""

from __future__ import annotations

from bisect import bisect_right

from dovetail.core import kernels, members
from dovetail.core.state import Subscription
from dovetail.core.turn import Turn

LEAST_LOADED = "least-loaded"


def eligible(turn: Turn, owner: int, ring: tuple[int, ...]) -> list[Subscription]:
    """The members whose turn it is: by the ring after the one that was served last, or those that hold least first."""
    everyone = [turn.subscriptions[number] for number in ring]
    start = bisect_right(everyone, turn.served_last.get(owner, ""), key=_name)
    free = [member for member in (*everyone[start:], *everyone[:start]) if turn.has_credit(member)]
    if owner < 0 or len(free) < 2:
        return free
    if turn.durable.groups[owner].strategy == LEAST_LOADED:
        free.sort(key=_load)
    return _willing(turn, owner, free)


def _willing(turn: Turn, owner: int, free: list[Subscription]) -> list[Subscription]:
    """Those in the best health, and of the others whoever takes this turn."""
    levels = [int(members.health(turn.conduct.get((owner, member.session)), turn.mono_ms)) for member in free]
    best = min(levels)
    if max(levels) == best:
        return free
    return [
        member
        for member, level in zip(free, levels, strict=True)
        if kernels.takes_turn(level - best, (turn.next_lease << 20) + member.id)
    ]


def _name(subscription: Subscription) -> str:
    return subscription.member


def _load(subscription: Subscription) -> int:
    return subscription.in_flight


def shares(turn: Turn, owner: int, available: int, chosen: list[Subscription]) -> list[int]:
    """How many of `available` messages each of the chosen gets, credit aside."""
    if owner > 0 and turn.durable.groups[owner].strategy == LEAST_LOADED:
        return levelled(available, [member.in_flight for member in chosen])
    return [kernels.share(available, len(chosen), place) for place in range(len(chosen))]


def levelled(available: int, loads: list[int]) -> list[int]:
    """`available` messages dealt one by one to whoever has least, given ascending `loads`."""
    count, total = 1, loads[0]
    while count < len(loads) and loads[count] * count - total < available:
        total += loads[count]
        count += 1
    level, rest = divmod(available + total, count)
    filled = [level - load + (1 if place < rest else 0) for place, load in enumerate(loads[:count])]
    return filled + [0] * (len(loads) - count)
