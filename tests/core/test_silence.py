"""A member is out when it is silent, not when the broker was."""

from dovetail.core import inputs
from dovetail.core.ids import Now
from dovetail.core.state import Settings
from tests.core.running import Running

TIMEOUT_MS = 10_000


def with_member() -> tuple[Running, int]:
    broker = Running(Settings(session_timeout_ms=TIMEOUT_MS))
    reader = broker.consumer()
    reader.subscribe("a", "g")
    return broker, reader.local.session


def test_a_member_whose_sign_of_life_waited_while_the_broker_slept_stays() -> None:
    broker, session = with_member()
    broker.now = Now(broker.now.mono_ms + 3 * TIMEOUT_MS, broker.now.wall_ms)
    broker.node.submit(inputs.Seen(session))
    broker.settle_down()
    assert session in broker.node.state.live.sessions


def test_a_member_that_said_nothing_is_out() -> None:
    broker, session = with_member()
    broker.jump(3 * TIMEOUT_MS)
    assert session not in broker.node.state.live.sessions


def test_a_broker_with_nothing_to_decide_takes_no_step() -> None:
    broker, _ = with_member()
    steps = []
    broker.node.observe = lambda *told: steps.append(told)
    broker.jump(1)
    assert steps == []
    broker.node.submit(inputs.Tidy())
    broker.jump(1)
    assert len(steps) == 1
