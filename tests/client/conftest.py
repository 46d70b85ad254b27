"""Coroutines as tests, without a plugin: each runs in an event loop of its own and leaves no task behind."""

import asyncio
import inspect

import pytest

TEST_SECONDS_MAX = 60.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(_bounded(pyfuncitem, arguments))
    return True


async def _bounded(item: pytest.Function, arguments: dict[str, object]) -> None:
    async with asyncio.timeout(TEST_SECONDS_MAX):
        await item.obj(**arguments)
    # One turn for what was cancelled on the way out.
    await asyncio.sleep(0)
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and not task.done()]
    assert left == [], "the client left tasks behind"
