"""What pytest gets from Dovetail: the fixture `dovetail_broker`, and async tests that run in its virtual time.

    async def test_orders_are_shipped_once(dovetail_broker: Broker) -> None: ...

    @pytest.mark.dovetail(seeds=20, chaos=True, lease="5s")
    async def test_orders_survive_anything(dovetail_broker: Broker) -> None: ...

The mark takes the options of `dovetail.testing.Broker`, and `seeds`: run the test so many times, each time with a seed
of its own. A test's async fixtures of function scope run in the same world, before and after it.

Promises  a failing test says its seed, and how to run that one again; nothing is imported before a test asks for it;
          whatever other plugin would run async tests leaves those that ask for the broker to it.
Never     touches tests that do not use the fixture.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

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
        if mark.args:
            raise pytest.Collector.CollectError("pytest.mark.dovetail takes options by name, such as seeds=20")
        options.update(mark.kwargs)
    return options


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if FIXTURE not in metafunc.fixturenames:
        return
    options = _options(metafunc)
    asked = metafunc.config.getoption("--dovetail-seed")
    first, count = options.get("seed", 0), options.get("seeds", 1)
    if not isinstance(count, int) or count < 1:
        raise pytest.Collector.CollectError(f"pytest.mark.dovetail: seeds is 1 or more, not {count!r}")
    seeds = [asked] if asked is not None else list(range(first, first + count))
    if asked is not None or len(seeds) > 1:
        metafunc.parametrize(FIXTURE, seeds, indirect=True, ids=[f"seed {seed}" for seed in seeds])


@pytest.fixture
def dovetail_broker(request: pytest.FixtureRequest) -> Generator[Broker, None, None]:
    """A broker in virtual time, which fails on command."""
    from dovetail.testing import Broker

    options = _options(request.node)
    options.pop("seeds", None)
    if hasattr(request, "param"):
        options["seed"] = request.param
    known, wrong = ("seeds", *inspect.signature(Broker).parameters), ""
    try:
        made = Broker(**options)
    except (TypeError, ValueError) as error:
        wrong = f"pytest.mark.dovetail: {error}; its options are {', '.join(known)}"
    if wrong:
        pytest.fail(wrong, pytrace=False)
    with made as broker:
        yield broker


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Run an async test in the virtual time of its broker: to whatever else runs tests it is one that is not async."""
    __tracebackhide__ = True
    broker: Broker | None = getattr(item, "funcargs", {}).get(FIXTURE)
    test = getattr(item, "obj", None)
    if broker is None or not isinstance(item, pytest.Function) or not inspect.iscoroutinefunction(test):
        return (yield)

    def in_virtual_time(**arguments: Any) -> None:
        __tracebackhide__ = True
        broker.run(test(**arguments))

    item.obj = in_virtual_time
    item.runtest = partial(pytest.Function.runtest, item)  # type: ignore[method-assign]  # whatever its class would do
    try:
        return (yield)
    finally:
        item.obj = test
        del item.runtest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Run a test's async fixture in the virtual time of its broker."""
    made = before = fixturedef.func
    is_generator = inspect.isasyncgenfunction(made)
    is_async = is_generator or inspect.iscoroutinefunction(made)
    if not is_async or fixturedef.scope != "function" or FIXTURE not in request.fixturenames:
        return (yield)
    broker: Broker = request.getfixturevalue(FIXTURE)
    # It ends before its broker does.
    request._get_active_fixturedef(FIXTURE).addfinalizer(lambda: fixturedef.finish(request=cast(Any, request)))
    if inspect.ismethod(made) and isinstance(request.instance, type(made.__self__)):
        made = made.__func__.__get__(request.instance)
    wrapped = _generated if is_generator else _returned
    fixturedef.func = partial(wrapped, broker, made)  # type: ignore[misc]  # put back below
    try:
        return (yield)
    finally:
        fixturedef.func = before  # type: ignore[misc]  # as it was


def _returned(broker: Broker, made: Callable[..., Any], **arguments: Any) -> Any:
    return broker.run(made(**arguments))


def _generated(broker: Broker, made: Callable[..., Any], **arguments: Any) -> Generator[Any, None, None]:
    generator = made(**arguments)

    async def step() -> Any:
        return await anext(generator)

    async def last() -> None:
        async for _ in generator:
            pytest.fail("an async fixture yields once, this one did twice", pytrace=False)

    yield broker.run(step())
    broker.run(last())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say with which seed a test failed, and how to look at it."""
    report = yield
    broker: Broker | None = getattr(item, "funcargs", {}).get(FIXTURE)
    if broker is None or report.when != "call" or not report.failed:
        return report
    again = f"pytest {shlex.quote(item.nodeid)}"
    if item.config.getoption("--dovetail-seed") is not None:
        again += f" --dovetail-seed {broker.seed}"
    text = f"seed {broker.seed}, after {broker.now:.3f} s of virtual time\nagain: {again}\n"
    directory = item.config.getoption("--dovetail-pages")
    if directory:
        os.makedirs(directory, exist_ok=True)
        path = os.path.join(directory, re.sub(r"[^\w.-]+", "-", f"{item.nodeid}-{broker.seed}") + ".html")
        broker.write_page(path, item.nodeid)
        text += f"its run as a page: {path}\n"
    else:
        text += "add --dovetail-pages DIR to see its run as a page\n"
    report.sections.append(("Dovetail", text))
    return report
