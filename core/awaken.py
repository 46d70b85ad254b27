"""From what survived to a running broker: the volatile part of the state made anew.

Promises  everything durable is stored by definition; every cursor reads on from its floor; nobody is connected, nothing
          is leased (I-AWAKE).
Never     changes what is durable.
"""

from __future__ import annotations

from immutables import Map

from dovetail.core import delay
from dovetail.core.ids import ordered
from dovetail.core.names import Trie, is_hidden
from dovetail.core.records import ReplayState
from dovetail.core.state import Durable, Line, Live, Progress, Settings, State, Tail
from dovetail.core.timers import REPLAY, Wheel, put


def awaken(durable: Durable, settings: Settings) -> State:
    """The state of a broker that starts with `durable`; its first input is `Start`."""
    topic_trie, group_trie = Trie(), Trie()
    for number, topic in ordered(durable.topics):
        if not is_hidden(topic.name):
            topic_trie = topic_trie.insert(topic.name, number)
    for number, group in ordered(durable.groups):
        for pattern in group.patterns:
            group_trie = group_trie.insert(pattern, number)
    tails: Map[int, Tail] = Map({number: Tail(log.end) for number, log in ordered(durable.logs)})
    readers: dict[int, tuple[int, ...]] = {}
    progress: dict[tuple[int, int], Progress] = {}
    for key, cursor in ordered(durable.cursors):
        group_id, log = key
        readers[log] = (*readers.get(log, ()), group_id)
        progress[key] = Progress(cursor.floor)
    line = Line(first=durable.lsn + 1)
    alarms = Wheel()
    for _, topic in ordered(durable.topics):
        if delay.is_delay(topic.name):
            for at_ms, alarm in delay.alarms_of(topic):
                alarms = put(alarms, at_ms, alarm)
    jobs = Wheel()
    for number, replay in ordered(durable.replays):
        if replay.state == ReplayState.RUNNING:
            jobs = put(jobs, 0, (REPLAY, number, 0))
    live = Live(
        topic_trie=topic_trie,
        group_trie=group_trie,
        tails=tails,
        readers=Map(readers),
        progress=Map(progress),
        alarms=alarms,
        timers=jobs,
        unsynced=line,
        unwritten=line,
        stored_lsn=durable.lsn,
    )
    return State(durable, live, settings)
