"""The broker without I/O, told what sockets do."""

from dovetail.core.awaken import awaken
from dovetail.core.committer import Committer
from dovetail.core.connection import Terms
from dovetail.core.ids import Now
from dovetail.core.node import Node, NodeOptions
from dovetail.core.state import Durable, Settings


def test_who_reads_slowly_stays_and_who_reads_nothing_is_told_and_closed() -> None:
    options = NodeOptions(stall_ms=1_000, send_window_bytes=100)
    committer = Committer(lsn=0, crc=0, salt=1, linger_ms=50)
    node = Node(awaken(Durable(), Settings()), committer, Terms(), options)
    slow, stuck = node.connect("slow"), node.connect("stuck")
    for second in range(1, 6):
        now = Now(second * 1_000, second * 1_000)
        for session in node.unread(now):
            node.wrote(session, 1_000 - second if session == slow else 1_000)
        node.tick(now)
        if second == 1:
            node.wrote(slow, 1_000)
            node.wrote(stuck, 1_000)
        ended = [(session, b"read" in b"".join(said)) for session, said, closing in node.outgoing() if closing]
        assert ended == ([(stuck, True)] if second == 2 else [])
        for session, _ in ended:
            node.disconnect(session)
