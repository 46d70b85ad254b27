"""What must hold between steps, whatever happened: the state's own books, checked against each other.

Promises  `check_state` raises `Bug` naming the first invariant that is broken, with the values at hand.
Never     runs in production by itself, changes anything, or trusts a redundancy: what can be derived is derived anew.
"""

from __future__ import annotations

from collections import Counter

from immutables import Map

from dovetail.core import intervals, names, timers
from dovetail.core.cursor import Cursor
from dovetail.core.dispatch import ISLANDS_MAX, RETRIES_MAX
from dovetail.core.ids import check, ordered
from dovetail.core.intervals import Range, Runs
from dovetail.core.leases import DYING_MAX
from dovetail.core.names import Trie, is_hidden
from dovetail.core.routing import logs_of
from dovetail.core.state import Line, Progress, State, Subscription, Tenure

Key = tuple[int, int]


def check_state(state: State, mono_ms: int | None = None) -> None:
    """Raise `Bug` if the state between two steps breaks an invariant; with the time, also if work was left undone."""
    _check_logs(state)
    _check_lines(state)
    _check_names(state)
    _check_sessions(state)
    _check_members(state)
    _check_subscriptions(state)
    _check_routes(state)
    _check_cursors(state)
    _check_leases(state)
    _check_accounts(state)
    _check_timers(state)
    _check_queues(state)
    _check_tenures(state)
    _check_fence(state)
    _check_keys(state)
    if mono_ms is not None:
        _check_retry_timers(state, mono_ms)
        _check_nothing_idles(state, mono_ms)


def _check_logs(state: State) -> None:
    """Every log is a place of its topic and has a tail that ends where it ends."""
    durable, tails = state.durable, state.live.tails
    count = 0
    for number, topic in ordered(durable.topics):
        check(durable.topics_by_name.get(topic.name) == number < durable.next_topic, "I-NAMES", topic)
        check(topic.first_log + topic.log_count <= durable.next_log, "I-IDS", topic)
        for log in logs_of(topic):
            check(log in durable.logs and durable.logs[log].topic == number, "I-IDS", topic, log)
        count += topic.log_count
    check(len(durable.logs) == count == len(tails), "I-IDS", count, len(durable.logs), len(tails))
    for number, log_state in ordered(durable.logs):
        tail = tails[number]
        check(log_state.start <= tail.stored <= log_state.end, "I-STORED", log_state, tail)
        last = log_state.end - 1
        for batch in reversed(tail.batches):
            if not batch.base <= batch.last == last:
                check(False, "I-DENSE", log_state, tail)
            last = batch.base - 1


def _check_lines(state: State) -> None:
    """What waits to be stored waits for a frame that exists and is not stored yet."""
    live, lsn = state.live, state.durable.lsn
    check(live.stored_lsn <= lsn, "I-CONFIRM", live.stored_lsn, lsn)
    check(live.unsynced.first == live.stored_lsn + 1, "I-CONFIRM", live.unsynced.first, live.stored_lsn)
    for line in (live.unsynced, live.unwritten):
        _check_line(line, lsn)


def _check_line(line: Line, lsn: int) -> None:
    for number, _ in ordered(line.waiting):
        check(line.first <= number <= lsn, "I-CONFIRM", line.first, number, lsn)


def _check_names(state: State) -> None:
    """The tries are what their definitions give, neither more nor less."""
    durable, live = state.durable, state.live
    topic_trie, group_trie, subscription_trie = Trie(), Trie(), Trie()
    for number, topic in ordered(durable.topics):
        if not is_hidden(topic.name):
            topic_trie = topic_trie.insert(topic.name, number)
    for number, group in ordered(durable.groups):
        check(durable.groups_by_name.get(group.name) == number < durable.next_group, "I-NAMES", group)
        for pattern in group.patterns:
            group_trie = group_trie.insert(pattern, number)
    for number, subscription in ordered(live.subscriptions):
        subscription_trie = subscription_trie.insert(subscription.pattern, number)
    check(len(durable.topics) == len(durable.topics_by_name), "I-NAMES", "topics")
    check(len(durable.groups) == len(durable.groups_by_name), "I-NAMES", "groups")
    check(live.topic_trie == topic_trie, "I-MATCH", "topics")
    check(live.group_trie == group_trie, "I-MATCH", "patterns of groups")
    check(live.subscription_trie == subscription_trie, "I-MATCH", "patterns of subscriptions")


def _check_sessions(state: State) -> None:
    """Nothing is kept for an owner that is gone."""
    live = state.live
    for owner in (*_owners(live.teams), *_owners(live.queues), *_owners(live.served_last)):
        check(owner in state.durable.groups or -owner in live.sessions, "I-SESSION", owner)


def _owners(mapping: Map[int, object]) -> list[int]:
    return [owner for owner, _ in ordered(mapping)]


def _check_members(state: State) -> None:
    """A member of a group is one session, and a session is at most one member of a group."""
    live, count = state.live, 0
    for number, session in ordered(live.sessions):
        groups = [member.group for member in session.members]
        check(len(set(groups)) == len(groups), "I-MEMBER", session)
        for member in session.members:
            check(member.group in state.durable.groups, "I-MEMBER", session)
            check(live.members_by_name.get(f"{member.group}/{member.name}") == number, "I-MEMBER", session)
            count += 1
            check((live.rosters.get(member.group) or Map()).get(number) == member.name, "I-MEMBER", session)
    check(len(live.members_by_name) == count, "I-MEMBER", len(live.members_by_name), count)
    check(sum(len(roster) for _, roster in ordered(live.rosters)) == count, "I-MEMBER", live.rosters)


def _check_subscriptions(state: State) -> None:
    """A subscription belongs to its session, its team, and to the member it delivers to."""
    live = state.live
    teams: dict[int, tuple[int, ...]] = {}
    by_session: dict[int, tuple[int, ...]] = {}
    for number, subscription in ordered(live.subscriptions):
        check(subscription.session in live.sessions and number < live.next_subscription, "I-SESSION", subscription)
        session = live.sessions[subscription.session]
        named = [member.name for member in session.members if member.group == subscription.owner]
        alone = subscription.owner == -session.id and subscription.member == ""
        check(alone or named == [subscription.member], "I-MEMBER", subscription, session)
        teams[subscription.owner] = (*teams.get(subscription.owner, ()), number)
        by_session[session.id] = (*by_session.get(session.id, ()), number)
    check(live.teams == Map(teams), "I-ROUTES", live.teams, teams)
    for number, session in ordered(live.sessions):
        check(session.subscriptions == by_session.get(number, ()), "I-SESSION", session)


def _check_routes(state: State) -> None:
    """A topic goes to each member of each team under the oldest subscription that matches it, in order of member."""
    live = state.live
    routes: dict[Key, tuple[int, ...]] = {}
    for owner, team in ordered(live.teams):
        for number, topic in ordered(state.durable.topics):
            oldest: dict[str, int] = {}
            for subscription in (live.subscriptions[each] for each in team):
                if _reads(subscription.pattern, topic.name):
                    oldest.setdefault(subscription.member, subscription.id)
            if oldest:
                routes[owner, number] = tuple(oldest[member] for member in sorted(oldest))
    expected: Map[Key, tuple[int, ...]] = Map(routes)
    check(live.routes == expected, "I-ROUTES", live.routes, routes)


def _reads(pattern: str, topic: str) -> bool:
    """Whether a pattern stands for a topic: none does for the hidden ones that delayed messages wait in."""
    return not is_hidden(topic) and names.matches(pattern, topic)


def _check_cursors(state: State) -> None:
    """Everyone who should read a log has one cursor in it, in normal form, within the log's bounds."""
    durable, live = state.durable, state.live
    wanted: dict[Key, None] = {}
    for number, group in ordered(durable.groups):
        for topic in (topic for _, topic in ordered(durable.topics)):
            if any(_reads(pattern, topic.name) for pattern in group.patterns):
                wanted.update(((number, log), None) for log in logs_of(topic))
    check({key: None for key, _ in ordered(durable.cursors)} == wanted, "I-CURSOR", durable.cursors, wanted)
    for (owner, topic_id), _ in ordered(live.routes):
        if owner < 0:
            wanted.update(((owner, log), None) for log in logs_of(durable.topics[topic_id]))
    check({key: None for key, _ in ordered(live.progress)} == wanted, "I-CURSOR", live.progress, wanted)
    check(len(durable.cursors) + len(live.ephemeral) == len(wanted), "I-CURSOR", live.ephemeral)
    readers: dict[int, tuple[int, ...]] = {}
    for owner, log in sorted(wanted):
        readers[log] = (*readers.get(log, ()), owner)
        _check_cursor(state, owner, log)
    for log, _ in ordered(durable.logs):
        check(live.readers.get(log, ()) == readers.get(log, ()), "I-ROUTES", log, live.readers.get(log))
    check(all(log in durable.logs for log, _ in ordered(live.readers)), "I-ROUTES", live.readers)


def _check_cursor(state: State, owner: int, number: int) -> None:
    cursor, progress = cursor_of(state, owner, number), state.live.progress[owner, number]
    log = state.durable.logs[number]
    # A group's floor holds retention back; a session's own cursor may be overtaken by it.
    check((owner < 0 or log.start <= cursor.floor) and cursor.floor <= log.end, "I-RETAIN", owner, log, cursor)
    check(progress.next <= (log.end if owner < 0 else state.live.tails[number].stored), "I-STORED", log, progress)
    previous = cursor.floor
    for first, last in cursor.islands:
        if not previous < first <= last < log.end:
            check(False, "I-INTERVALS", log, cursor)
        previous = last + 1
    _check_attempts(cursor, cursor.attempts)


def _check_attempts(cursor: Cursor, runs: Runs) -> None:
    previous: tuple[int, int, int] = (0, cursor.floor - 1, 0)
    for first, last, value in runs:
        check(previous[1] < first <= last and value > 0, "I-ATTEMPTS", cursor)
        check(first > previous[1] + 1 or value != previous[2], "I-ATTEMPTS", cursor)
        check(not intervals.overlaps(cursor.islands, first, last), "I-ATTEMPTS", cursor)
        previous = (first, last, value)


def _check_leases(state: State) -> None:
    """A lease is held by the subscription that knows it, of something stored, against credit that was taken."""
    live = state.live
    held: dict[int, dict[int, None]] = {}
    taken: dict[int, int] = {}
    for number, lease in ordered(live.leases):
        check(lease.id == number and lease.subscription in live.subscriptions, "I-LEASE", lease)
        holder = live.subscriptions[lease.subscription]
        check((holder.owner, holder.member) == (lease.owner, lease.member), "I-LEASE", lease, holder)
        check((lease.owner, lease.log) in live.progress and len(lease.ranges) > 0, "I-LEASE", lease)
        check(lease.ranges[-1][1] < live.tails[lease.log].stored, "I-STORED", lease, live.tails[lease.log])
        held.setdefault(holder.id, {})[number] = None
        taken[holder.id] = taken.get(holder.id, 0) + intervals.total(lease.ranges)
    for number, subscription in ordered(live.subscriptions):
        check(subscription.leases == Map(held.get(number, {})), "I-LEASE", subscription)
        # The rest of what is in flight was sent without a lease and is not yet reported as sent.
        check(subscription.in_flight >= taken.get(number, 0), "I-CREDIT", subscription, taken.get(number, 0))


def _check_accounts(state: State) -> None:
    """Every offset that a cursor has passed and not settled is in exactly one place (I-ACCOUNT)."""
    live = state.live
    places: dict[Key, list[Range]] = {}
    for _, lease in ordered(live.leases):
        places.setdefault((lease.owner, lease.log), []).extend(lease.ranges)
    under_way: Counter[Key] = Counter()
    for _, dying in ordered(live.dying):
        progress = live.progress.get((dying.owner, dying.log))
        if progress is not None and progress.era == dying.era:
            under_way[dying.owner, dying.log] += 1
            cursor = cursor_of(state, dying.owner, dying.log)
            for only in intervals.gaps(cursor.islands, max(dying.offset, cursor.floor), dying.offset):
                places.setdefault((dying.owner, dying.log), []).append(only)
    for (owner, log), progress in ordered(live.progress):
        cursor = cursor_of(state, owner, log)
        check(progress.dying == under_way[owner, log], "I-ACCOUNT", owner, log, progress)
        found = sorted([*places.get((owner, log), []), *((retry.first, retry.last) for retry in progress.retries)])
        joined = intervals.EMPTY
        for first, last in found:
            if first > last or intervals.overlaps(joined, first, last):
                check(False, "I-LEASE", owner, log, found)
            joined = intervals.add(joined, first, last)
        expected = intervals.gaps(cursor.islands, cursor.floor, progress.next - 1)
        check(joined == expected, "I-ACCOUNT", owner, log, found, cursor, progress)


def cursor_of(state: State, owner: int, log: int) -> Cursor:
    """A group's durable cursor, or a session's own."""
    return state.durable.cursors[owner, log] if owner > 0 else state.live.ephemeral[owner, log]


def _check_timers(state: State) -> None:
    """A lease has its timer and a timer of a lease its lease; a member's silence is watched."""
    live, wheel = state.live, state.live.timers
    watched: dict[int, None] = {}
    leases_timed = 0
    for bucket, fired in timers.contents(wheel):
        check(wheel.soonest <= bucket and len(fired) > 0, "I-TIMER", wheel.soonest, bucket)
        for (kind, a, _), _ in ordered(fired):
            if kind == timers.LEASE:
                leases_timed += 1
                lease = live.leases.get(a)
                if lease is None or timers.bucket_of(lease.deadline_ms) != bucket:
                    check(False, "I-TIMER", a, bucket)
            elif kind == timers.SESSION:
                watched[a] = None
    check(leases_timed == len(live.leases), "I-TIMER", leases_timed, len(live.leases))
    for number, session in ordered(live.sessions):
        check(not session.members or number in watched, "I-TIMER", session)


def _check_retry_timers(state: State, mono_ms: int) -> None:
    """What waits for a later try is woken when its time comes."""
    for (owner, log), progress in ordered(state.live.progress):
        due = [retry.due_ms for retry in progress.retries]
        check(due == sorted(due), "I-TIMER", owner, log, progress.retries)
        for due_ms in due:
            if due_ms > mono_ms:
                woken = (timers.RETRY, owner, log) in state.live.timers.bucket(timers.bucket_of(due_ms))
                check(woken, "I-TIMER", owner, log, due_ms)


def _is_due(due_ms: int, mono_ms: int) -> bool:
    return timers.bucket_of(due_ms) * timers.BUCKET_MS <= mono_ms


def _check_queues(state: State) -> None:
    """Whatever waits for credit stands in its owner's queue."""
    live = state.live
    queued: dict[int, dict[int, None]] = {}
    for owner, queue in ordered(live.queues):
        check([place for place, _ in ordered(queue.items)] == list(range(queue.head, queue.tail)), "I-QUEUE", queue)
        queued[owner] = {log: None for _, log in ordered(queue.items)}
    for (owner, log), progress in ordered(live.progress):
        check(not progress.waiting or log in queued.get(owner, {}), "I-QUEUE", owner, log, progress)


def _check_nothing_idles(state: State, mono_ms: int) -> None:
    """Where there is something to send and a member with credit, it was sent; else it waits in the queue (I-IDLE)."""
    live = state.live
    for (owner, log), progress in ordered(live.progress):
        ring = _ring(state, owner, log)
        if not ring or not _has_work(state, owner, log, progress, mono_ms):
            continue
        free = [live.subscriptions[number] for number in ring if _has_credit(live.subscriptions[number])]
        held = owner > 0 and state.durable.groups[owner].strategy == "key-ordered"
        held = held or len(cursor_of(state, owner, log).islands) >= ISLANDS_MAX
        # A partition's lanes wait for credit as one, under the first of them.
        waiting = live.progress[owner, log - state.durable.logs[log].lane].waiting
        check((held or not free) and waiting, "I-IDLE", owner, log, progress, free)


def _ring(state: State, owner: int, log: int) -> tuple[int, ...]:
    """Whose turn it may be: everyone's who reads the topic; in a partitioned group the holder's of the partition."""
    live, place = state.live, state.durable.logs[log]
    ring = live.routes.get((owner, place.topic), ())
    if owner < 0 or state.durable.groups[owner].mode == "shared":
        return ring
    tenure = (live.tenures.get(owner) or Map()).get(place.id - place.lane)
    holder = tenure.member if tenure is not None and not tenure.revoke_by_ms else None
    return tuple(number for number in ring if live.subscriptions[number].member == holder)


def _has_work(state: State, owner: int, log: int, progress: Progress, mono_ms: int) -> bool:
    if progress.retries and _is_due(progress.retries[0].due_ms, mono_ms):
        return True
    if progress.reading or len(progress.retries) >= RETRIES_MAX or progress.dying >= DYING_MAX:
        return False
    return max(progress.next, cursor_of(state, owner, log).floor) < state.live.tails[log].stored


def _has_credit(subscription: Subscription) -> bool:
    return subscription.in_flight < subscription.credit_max


def _check_tenures(state: State) -> None:
    """A slot is held by a member that is there, as planned or asked back, unless a new plan is due."""
    live, durable = state.live, state.durable
    for number, tenures in ordered(live.tenures):
        group = durable.groups[number]
        check(group.mode == "partitioned" and len(tenures) > 0, "I-TENURE", group)
        planned = {slot: member for member, slots in group.shares for slot in slots}
        asked = {each.member for _, each in ordered(tenures) if each.revoke_by_ms}
        for slot, tenure in ordered(tenures):
            check(slot in durable.logs and durable.logs[slot].lane == 0, "I-TENURE", group, slot)
            check(f"{number}/{tenure.member}" in live.members_by_name, "I-TENURE", group, tenure)
            check(0 < tenure.since <= group.generation, "I-FENCE", group, tenure)
            settled = planned.get(slot) == tenure.member or tenure.member in asked
            check(settled or number in live.gatherings, "I-TENURE", group, slot, tenure)
    for number, group in ordered(durable.groups):
        if group.mode == "partitioned" and number in live.rosters and number not in live.gatherings:
            held: Map[int, Tenure] = live.tenures.get(number) or Map()
            members = tuple(sorted(name for _, name in ordered(live.rosters[number])))
            check(tuple(member for member, _ in group.shares) == members, "I-PLAN", group, members)
            for _, slots in group.shares:
                check(all(slot in held for slot in slots), "I-TENURE", group, held)


def _check_fence(state: State) -> None:
    """In a partitioned group a lease belongs to the holder of its slot, under a generation of its hold."""
    for _, lease in ordered(state.live.leases):
        if lease.owner > 0 and state.durable.groups[lease.owner].mode == "partitioned":
            log, group = state.durable.logs[lease.log], state.durable.groups[lease.owner]
            tenure = state.live.tenures[lease.owner][log.id - log.lane]
            check(tenure.member == lease.member, "I-FENCE", lease, tenure)
            check(tenure.since <= lease.generation <= group.generation, "I-FENCE", lease, tenure)


def _check_keys(state: State) -> None:
    """In a key-ordered group no key is at two members."""
    at: dict[tuple[int, int, int], str] = {}
    for _, lease in ordered(state.live.leases):
        for key in lease.keys:
            check(at.setdefault((lease.owner, lease.log, key), lease.member) == lease.member, "I-KEY", lease)
