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
    found.stdout.fnmatch_lines(["*seed 3, after * s of virtual time", "again: pytest '*shipped[[]seed 3]'"])
    pages = sorted(pytester.path.joinpath("pages").glob("*.html"))
    assert len(pages) == 4
    assert "orders" in pages[0].read_text()


def test_one_seed_can_be_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(AT_MOST_ONCE)
    found = pytester.runpytest_inprocess("--dovetail-seed", "2", "-p", "no:cacheprovider")
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines(["again: pytest '*shipped[[]seed 2]' --dovetail-seed 2"])


def test_tests_that_do_not_ask_for_the_broker_load_nothing_of_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\ndef test_plain(): assert not [m for m in sys.modules if m.startswith('simpy')]")
    found = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    found.assert_outcomes(passed=1)


FIXTURES = """
import pytest
from dovetail import App, connect

@pytest.fixture
async def dv(dovetail_broker):
    async with connect() as dv:
        yield dv

class TestShop:
    @pytest.fixture
    async def shipped(self):
        shipped, app = [], App()

        @app.subscriber("orders", group="shipping")
        async def ship(order):
            shipped.append(order.text)

        async with app:
            yield shipped

    @pytest.mark.parametrize("delay", ["1h", "2h"])
    async def test_it(self, dovetail_broker, shipped, dv, delay):
        await dv.publish("orders", "one", delay=delay)
        await dovetail_broker.advance("3h")
        assert shipped == ["one"]
"""


def test_async_fixtures_live_in_the_world_of_their_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FIXTURES)
    found = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error")
    found.assert_outcomes(passed=2)


OTHER_PLUGIN = """
import inspect
import pytest

class Elsewhere(pytest.Function):
    def runtest(self):
        raise AssertionError("run by another plugin")

@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector):
    found = yield
    for place, item in enumerate(found or () if isinstance(found, list) else ()):
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            found[place] = Elsewhere.from_parent(
                item.parent, name=item.name, callobj=item.obj, fixtureinfo=item._fixtureinfo
            )
    return found

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    assert not inspect.iscoroutinefunction(pyfuncitem.obj), "run by another plugin"
"""


def test_other_plugins_for_async_tests_leave_those_with_a_broker_to_it(pytester: pytest.Pytester) -> None:
    """As pytest-asyncio does with `asyncio_mode = auto`, and anyio: on a loop of theirs the test would look for a real
    broker, and find it where one runs."""
    pytester.makeconftest(OTHER_PLUGIN)
    pytester.makepyfile("async def test_it(dovetail_broker): await dovetail_broker.advance('1h')")
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("20", "*takes options by name, such as seeds=20*"),
        ("seeds=0", "*seeds is 1 or more, not 0*"),
        ("leese='5s'", "*unexpected keyword argument 'leese'; its options are seeds, seed, lease, *"),
        ("lease='soon'", "*'soon' is not a duration*"),
    ],
)
def test_a_mark_that_can_not_be_understood_says_so(pytester: pytest.Pytester, mark: str, said: str) -> None:
    pytester.makepyfile(f"import pytest\n@pytest.mark.dovetail({mark})\nasync def test_it(dovetail_broker): pass")
    found = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    assert found.ret != 0
    found.stdout.fnmatch_lines([said])


def test_a_test_that_stalls_shows_where_it_waits_and_nothing_of_ours(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="import asyncio, pytest\n@pytest.mark.dovetail(limit='1m')\n"
        "async def test_it(dovetail_broker):\n    await asyncio.Event().wait()"
    )
    found = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    found.stdout.fnmatch_lines(["*60 s of virtual time are over*", "*test_it.py:4, in test_it"])
    found.stdout.no_fnmatch_line("*base_events*")


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
