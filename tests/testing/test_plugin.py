"""What pytest shows to people whose tests use the fixture."""

import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.sim.mutants import zoo

pytest_plugins = "pytester"

AT_MOST_ONCE = """
import asyncio
import pytest
from dovetail import App, connect

@pytest.mark.dovetail(seeds=4, chaos=True)
async def test_every_order_is_shipped(dovetail_broker):
    shipped = []
    app = App()

    @app.subscriber("orders", group="shipping", ack="first")
    async def ship(order):
        await app.client.publish("parcels", order.text)
        shipped.append(order.text)

    async with asyncio.TaskGroup() as tasks, connect() as dv:
        running = tasks.create_task(app.run())
        for number in range(30):
            await dv.publish("orders", str(number))
            if number == 20:
                running.cancel()
        await dovetail_broker.advance("1s")
    assert set(shipped) == {str(number) for number in range(30)}
"""


def test_a_failing_test_says_its_seed_how_to_run_it_again_and_shows_its_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(AT_MOST_ONCE)
    found = pytester.runpytest_inprocess("--dovetail-pages", "pages", "-p", "no:cacheprovider")
    found.assert_outcomes(failed=4)
    found.stdout.fnmatch_lines(["*seed 3, after * s of virtual time", "again: pytest '*shipped' --dovetail-seed 3"])
    pages = sorted(pytester.path.joinpath("pages").glob("*.html"))
    assert len(pages) == 4
    assert "orders" in pages[0].read_text()


def test_one_seed_can_be_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(AT_MOST_ONCE)
    found = pytester.runpytest_inprocess("--dovetail-seed", "2", "-p", "no:cacheprovider")
    found.assert_outcomes(failed=1)


def test_tests_that_do_not_ask_for_the_broker_load_nothing_of_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\ndef test_plain(): assert not [m for m in sys.modules if m.startswith('simpy')]")
    found = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    found.assert_outcomes(passed=1)


PLANTED = """
import sys
from dovetail.sim.mutants import hook, zoo

hook.install(next(each for each in zoo.ZOO if each.name == sys.argv[1]))
from dovetail.testing import Broker
from tests.testing.test_broker import shop

for seed in range(8):
    broker = Broker(seed=seed, chaos=True)
    broker.run(shop(broker))
"""


@pytest.mark.parametrize("name", ["confirm-before-sync", "leavers-messages-forgotten", "split-frame-mangled"])
def test_a_mistake_in_the_broker_fails_the_programs_test(name: str) -> None:
    """Even a program that would not have noticed: the promises are looked at beside it."""
    assert name in {each.name for each in zoo.ZOO}
    run = [sys.executable, "-c", PLANTED, name]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2])
    assert ended.returncode == 1
    assert any(word in ended.stderr for word in ("Violated: I-", "Bug: I-", "has not settled", "Stalled")), ended.stderr
