"""What pytest gets from Dovetail: the fixture `dovetail_broker`, and async tests that run in its virtual time.

    async def test_orders_are_shipped_once(dovetail_broker: Broker) -> None: ...

    @pytest.mark.dovetail(seeds=20, chaos=True, lease="5s")
    async def test_orders_survive_anything(dovetail_broker: Broker) -> None: ...

The mark takes the options of `dovetail.testing.Broker`, and `seeds`: run the test so many times, each time with a seed
of its own.

Promises  a failing test says its seed, and how to run that one again; nothing is imported before a test asks for it.
Never     touches tests that do not use the fixture.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, cast

import pluggy
import pytest

if TYPE_CHECKING:
    from dovetail.testing import Broker

FIXTURE = "dovetail_broker"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("dovetail")
    group.addoption(
        "--dovetail-seed", type=int, default=None, metavar="N", help="the seed of every Dovetail test broker"
    )
    group.addoption(
        "--dovetail-pages", default="", metavar="DIR", help="write the run of each failing test as a page to DIR"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "dovetail(seeds=1, **options): options of the Dovetail test broker, and how many seeds to try"
    )


def _options(node: pytest.Item | pytest.Metafunc) -> dict[str, Any]:
    """What the marks say, the nearest last."""
    definition = node.definition if isinstance(node, pytest.Metafunc) else node
    options: dict[str, Any] = {}
    for mark in reversed(list(definition.iter_markers("dovetail"))):
        options.update(mark.kwargs)
    return options


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if FIXTURE not in metafunc.fixturenames:
        return
    options = _options(metafunc)
    asked = metafunc.config.getoption("--dovetail-seed")
    first = options.get("seed", 0)
    seeds = [asked] if asked is not None else list(range(first, first + options.get("seeds", 1)))
    if asked is not None or len(seeds) > 1:
        metafunc.parametrize(FIXTURE, seeds, indirect=True, ids=[f"seed {seed}" for seed in seeds])


@pytest.fixture
def dovetail_broker(request: pytest.FixtureRequest) -> Broker:
    """A broker in virtual time, which fails on command."""
    from dovetail.testing import Broker

    options = _options(request.node)
    options.pop("seeds", None)
    if hasattr(request, "param"):
        options["seed"] = request.param
    return Broker(**options)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test in the virtual time of its broker."""
    broker = cast("Broker | None", pyfuncitem.funcargs.get(FIXTURE))
    if broker is None or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    broker.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pluggy.Result[pytest.TestReport], None]:
    """Say with which seed a test failed, and how to look at it."""
    outcome = yield
    broker = getattr(item, "funcargs", {}).get(FIXTURE)
    report = outcome.get_result()
    if broker is None or report.when != "call" or not report.failed:
        return
    plain = item.nodeid.partition("[")[0]
    text = f"seed {broker.seed}, after {broker.now:.3f} s of virtual time\n"
    text += f"again: pytest '{plain}' --dovetail-seed {broker.seed}\n"
    directory = item.config.getoption("--dovetail-pages")
    if directory:
        os.makedirs(directory, exist_ok=True)
        path = os.path.join(directory, re.sub(r"[^\w.-]+", "-", f"{item.nodeid}-{broker.seed}") + ".html")
        broker.write_page(path, item.nodeid)
        text += f"its run as a page: {path}\n"
    else:
        text += "add --dovetail-pages DIR to see its run as a page\n"
    report.sections.append(("Dovetail", text))
