"""What joins a node to its storage: checkpoints in slices, and the housekeeping that is due."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.core import inputs
from dovetail.core.awaken import awaken
from dovetail.core.committer import Committer
from dovetail.core.connection import Terms
from dovetail.core.ids import Now
from dovetail.core.inputs import AnyInput
from dovetail.core.node import Node
from dovetail.core.records import TopicConfig
from dovetail.core.state import Settings
from dovetail.runtime.storage import checkpoint
from dovetail.runtime.storage.disk import Space, list_dir, read_all, run
from dovetail.runtime.storage.housekeeping import RETENTION_MS, SPACE_MS, TIDY_MS, Housekeeper
from dovetail.runtime.storage.lanes import Checkpointer, commit_task, job_task
from dovetail.runtime.storage.space import Level, SpaceLimits
from dovetail.runtime.storage.store import open_store
from tests.storage.build import SALT, SMALL, sim_disk

EVERY_MS = 60_000


class Life:
    """A node over its store, both lanes served at once, in a time of its own."""

    def __init__(self) -> None:
        self.disk = sim_disk()
        self.store, opened = run(self.disk, open_store(SMALL, "a test", 1, SALT))
        durable = opened.durable
        self.now = Now(1_000, 1_800_000_000_000)
        committer = Committer(lsn=durable.lsn, crc=opened.crc, salt=opened.salt, linger_ms=0)
        self.arrived: list[AnyInput] = []
        observe: Callable[..., None] = lambda now, arrived, records, effects: self.arrived.extend(arrived)  # noqa: E731
        self.node = Node(awaken(durable, Settings(session_timeout_ms=1 << 50)), committer, Terms(), observe=observe)
        self.operator = self.node.open_local("operator")
        self.settle_down()
        self.checkpointer = Checkpointer(self.store, self.node, EVERY_MS, self.now)
        self.housekeeper = Housekeeper(self.store, self.node, SpaceLimits(), self.now)

    def settle_down(self) -> None:
        while True:
            self.node.tick(self.now)
            for session, _, _ in self.node.outgoing():
                self.node.wrote(session, 0)
            commit = self.node.next_commit(self.now)
            if commit is not None:
                run(self.disk, commit_task(self.store, commit))
                self.node.committed()
            job = self.node.next_job()
            if job is not None:
                self.node.job_done(run(self.disk, job_task(self.store, job)))
            if commit is None and job is None and not self.node.has_arrivals:
                return

    def pass_time(self, by_ms: int) -> None:
        self.now = Now(self.now.mono_ms + by_ms, self.now.wall_ms + by_ms)
        self.settle_down()

    def create(self, topic: str) -> None:
        me, number = self.operator.session, self.operator.register(lambda answer, _: None)
        self.node.submit(inputs.CreateTopic(me, number, topic, 1, 0, TopicConfig()))
        self.settle_down()
        self.pass_time(1_000)

    def checkpoints(self) -> list[str]:
        """The names of those that were taken, once nothing more is to be done about them."""
        for _ in range(1_000):
            if not self.checkpointer.advance(self.now) and self.checkpointer.is_idle:
                break
            self.settle_down()
        return [info.name for info in run(self.disk, list_dir("checkpoints")) if info.name.strip("0") != ".ckpt"]

    def chores(self) -> list[str]:
        """What housekeeping does when it is looked at for as long as something is due."""
        self.arrived.clear()
        for _ in range(10):
            self.housekeeper.advance(self.now)
            self.settle_down()
        return [type(each).__name__ for each in self.arrived]


def test_a_checkpoint_that_was_asked_for_is_the_state_it_was_begun_with() -> None:
    life = Life()
    life.create("a")
    assert life.checkpoints() == []
    durable = life.node.state.durable
    life.checkpointer.ask()
    assert not life.checkpointer.is_idle
    assert life.checkpointer.advance(life.now)
    life.create("b")
    (name,) = life.checkpoints()
    data = run(life.disk, read_all(f"checkpoints/{name}"))
    assert checkpoint.decode(data) == durable
    assert data == b"".join(checkpoint.encode(durable))


def test_a_checkpoint_is_taken_when_its_time_has_come_and_something_was_decided_since_the_last() -> None:
    life = Life()
    began_ms = life.checkpointer.last_ms
    assert life.checkpointer.due_ms == began_ms + EVERY_MS
    life.create("a")
    life.pass_time(life.checkpointer.due_ms - life.now.mono_ms - 1)
    assert life.checkpoints() == []
    life.pass_time(1)
    assert len(life.checkpoints()) == 1
    assert life.checkpointer.last_ms == began_ms + EVERY_MS
    life.pass_time(EVERY_MS)
    assert len(life.checkpoints()) == 1
    assert life.checkpointer.last_ms == began_ms + 2 * EVERY_MS
    life.create("b")
    life.pass_time(EVERY_MS)
    assert len(life.checkpoints()) == 2


def test_a_checkpoint_waits_until_the_logs_have_all_that_it_says() -> None:
    life = Life()
    me, number = life.operator.session, life.operator.register(lambda answer, _: None)
    life.node.submit(inputs.CreateTopic(me, number, "a", 1, 0, TopicConfig()))
    life.settle_down()
    assert life.node.behind_lsn < life.node.state.durable.lsn
    life.checkpointer.ask()
    while life.checkpointer.advance(life.now):
        pass
    assert (life.node.is_quiet, life.checkpointer.is_idle) == (False, False)
    assert life.node.next_job() is None
    life.pass_time(1_000)
    assert life.checkpointer.advance(life.now) is False
    life.settle_down()
    assert life.checkpointer.is_idle


def test_housekeeping_looks_at_the_room_first_then_at_retention_and_tidies_later() -> None:
    life = Life()
    assert life.housekeeper.due_ms == life.now.mono_ms
    assert life.chores() == []
    assert life.housekeeper.due_ms == life.now.mono_ms + min(SPACE_MS, RETENTION_MS)
    tidied = 0
    for _ in range(TIDY_MS // SPACE_MS):
        assert tidied == 0
        life.pass_time(SPACE_MS)
        tidied += life.chores().count("Tidy")
    assert tidied == 1


def test_a_chore_is_begun_only_when_the_one_before_it_is_done() -> None:
    life = Life()
    life.housekeeper.advance(life.now)
    job = life.node.next_job()
    assert job is not None
    life.housekeeper.advance(life.now)
    life.node.job_done(run(life.disk, job_task(life.store, job)))
    assert life.node.next_job() is None
    life.housekeeper.advance(life.now)
    assert life.node.next_job() is not None


def test_the_fullest_of_several_file_systems_decides_and_each_has_its_own_slack() -> None:
    life = Life()
    for used, level in (((10, 96), "READ_ONLY"), ((94, 50), "COMPACT"), ((94, 94), "COMPACT"), ((10, 10), "FINE")):
        life.housekeeper._judge_space([Space(1000, 10 * (100 - percent)) for percent in used])
        life.settle_down()
        assert life.housekeeper.level.name == level
        assert bool(life.node.state.live.read_only) == (level == "READ_ONLY")


def test_when_the_disk_is_nearly_full_nothing_more_may_be_published_until_there_is_room() -> None:
    life = Life()
    whole = life.disk.capacity_bytes
    life.disk.capacity_bytes = life.disk.used_bytes() * 100 // 97
    life.chores()
    assert life.housekeeper.level is Level.READ_ONLY
    assert "% full: free some space" in life.node.state.live.read_only
    life.disk.capacity_bytes = whole
    life.pass_time(SPACE_MS)
    life.chores()
    assert (life.housekeeper.level, life.node.state.live.read_only) == (Level.FINE, "")
