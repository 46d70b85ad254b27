"""Who reads what: readers of a log, routes from a topic to subscriptions, cursors that begin.

Promises  a connection that matches a topic through several ungrouped subscriptions is routed once, under the oldest;
          a group's member likewise; the ring of a group is in order of member id (I-ROUTES).
Never     runs on a publish: only when a topic, a pattern or a subscription appears or goes.
"""

from __future__ import annotations

from msgspec.structs import replace

from dovetail.core import leases, names, rebalance
from dovetail.core.cursor import Cursor
from dovetail.core.records import CursorOpened
from dovetail.core.state import Progress, Subscription, Topic
from dovetail.core.turn import Turn


def logs_of(topic: Topic) -> range:
    """The numbers of a topic's logs."""
    return range(topic.first_log, topic.first_log + topic.log_count)


def topic_appeared(turn: Turn, topic: Topic) -> None:
    """Every group and every subscription whose pattern matches begins at the new topic's start."""
    for group in turn.group_trie.patterns_for(topic.name):
        open_cursors(turn, group, topic, from_start=True)
    for owner in {turn.subscriptions[sub].owner: None for sub in turn.subscription_trie.patterns_for(topic.name)}:
        reroute(turn, owner, topic)
        if owner < 0:
            open_cursors(turn, owner, topic, from_start=True)
        else:
            rebalance.disturb(turn, owner)


def topic_vanishes(turn: Turn, topic: Topic) -> None:
    """Nobody reads its logs any more; leases on them end."""
    for log in logs_of(topic):
        for owner in turn.readers.pop(log, ()):
            leases.end_all(turn, owner, log)
            turn.progress.pop((owner, log), None)
            turn.ephemeral.pop((owner, log), None)
            turn.lane_turns.pop((owner, log), None)
            turn.routes.pop((owner, topic.id), None)
            rebalance.topic_gone(turn, owner, topic)


def ring_of(turn: Turn, owner: int, log_id: int) -> tuple[int, ...]:
    """The subscriptions that a log's messages may go to: in a partitioned group those of the member that has it."""
    log = turn.durable.logs[log_id]
    ring = turn.routes.get((owner, log.topic), ())
    if owner < 0 or turn.durable.groups[owner].mode != rebalance.PARTITIONED:
        return ring
    tenures = turn.tenures.get(owner)
    tenure = tenures.get(rebalance.slot_of(log)) if tenures else None
    if tenure is None or tenure.revoke_by_ms:
        return ()
    return tuple([number for number in ring if turn.subscriptions[number].member == tenure.member])


def subscriber_count(turn: Turn, topic: Topic) -> int:
    """How many subscriptions read a topic."""
    owners = turn.readers.get(topic.first_log, ())
    return sum(len(turn.routes.get((owner, topic.id), ())) for owner in owners)


def open_cursors(turn: Turn, owner: int, topic: Topic, *, from_start: bool) -> None:
    """Have `owner` read every log of `topic`, from its start or from its end, unless it does already."""
    for log in logs_of(topic):
        if (owner, log) in turn.progress:
            continue
        found = turn.durable.logs[log]
        floor = found.start if from_start else found.end
        if owner > 0:
            turn.emit(CursorOpened(owner, log, floor))
        else:
            turn.ephemeral[owner, log] = Cursor(floor)
        turn.progress[owner, log] = Progress(floor)
        turn.readers[log] = tuple(sorted((*turn.readers.get(log, ()), owner)))
        turn.wake(owner, log)


def reroute(turn: Turn, owner: int, topic: Topic) -> None:
    """Make the ring of `owner`'s members for `topic` anew: each under its oldest matching subscription."""
    oldest: dict[str, int] = {}
    for number in turn.teams.get(owner, ()):
        subscription = turn.subscriptions[number]
        if names.matches(subscription.pattern, topic.name):
            oldest.setdefault(subscription.member, number)
    ring = tuple(oldest[member] for member in sorted(oldest))
    if ring:
        turn.routes[owner, topic.id] = ring
        for log in logs_of(topic):
            turn.wake(owner, log)
    else:
        turn.routes.pop((owner, topic.id), None)


def attach(turn: Turn, subscription: Subscription) -> None:
    """A new subscription joins its owner's team and the rings of all topics it matches."""
    owner = subscription.owner
    turn.subscriptions[subscription.id] = subscription
    turn.subscription_trie = turn.subscription_trie.insert(subscription.pattern, subscription.id)
    turn.teams[owner] = (*turn.teams.get(owner, ()), subscription.id)
    session = turn.sessions[subscription.session]
    turn.sessions[session.id] = replace(session, subscriptions=(*session.subscriptions, subscription.id))
    for number in turn.topic_trie.topics_for(subscription.pattern):
        topic = turn.durable.topics[number]
        reroute(turn, owner, topic)
        if owner < 0:
            open_cursors(turn, owner, topic, from_start=False)
    rebalance.disturb(turn, owner)


def detach(turn: Turn, subscription: Subscription) -> None:
    """A subscription goes: its leases return uncounted, its rings close up, ephemeral cursors without one end."""
    for lease in sorted(turn.subscriptions[subscription.id].leases):
        leases.give_back(turn, lease)
    owner = subscription.owner
    del turn.subscriptions[subscription.id]
    turn.subscription_trie = turn.subscription_trie.remove(subscription.pattern, subscription.id)
    team = tuple(number for number in turn.teams[owner] if number != subscription.id)
    if team:
        turn.teams[owner] = team
    else:
        del turn.teams[owner]
    session = turn.sessions[subscription.session]
    rest = tuple(number for number in session.subscriptions if number != subscription.id)
    turn.sessions[session.id] = replace(session, subscriptions=rest)
    for number in turn.topic_trie.topics_for(subscription.pattern):
        topic = turn.durable.topics[number]
        reroute(turn, owner, topic)
        if owner < 0 and (owner, topic.id) not in turn.routes:
            close_cursors(turn, owner, topic)
    if owner < 0 and not team:
        turn.queues.pop(owner, None)
        turn.served_last.pop(owner, None)
    rebalance.disturb(turn, owner)
    turn.woken[owner] = None


def close_cursors(turn: Turn, owner: int, topic: Topic) -> None:
    """`owner` reads a topic no more; what a group's cursor says is forgotten by the record that deletes the group."""
    for log in logs_of(topic):
        if turn.progress.pop((owner, log), None) is not None:
            turn.ephemeral.pop((owner, log), None)
            turn.lane_turns.pop((owner, log), None)
            turn.readers[log] = tuple(reader for reader in turn.readers[log] if reader != owner)
