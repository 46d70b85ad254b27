"""The console in a real browser. Where none can be had the tests are skipped, and say so."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.core.records import TopicConfig
from dovetail.core.state import Settings
from tests.broker.house import House
from tests.console.browser import browsing, find_browser
from tests.http.api import Api, text

CHROMIUM = find_browser()
FILES = Path(__file__).parents[2] / "runtime" / "console"
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="NO BROWSER: the console was not tested; install chromium (apt-get install chromium)"
)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    house = House(str(tmp_path / "data"), Settings(topic_defaults=TopicConfig(max_retries=0)))
    yield Api(house)
    house.stop()


def test_the_console_asks_nobody_but_the_broker() -> None:
    for name in ("index.html", "console.js", "console.css"):
        found = re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s\"'`]*", (FILES / name).read_text())
        assert [each for each in found if "www.w3.org" not in each] == [], name


@needs_browser
def test_a_message_is_published_dies_is_looked_at_and_replayed_through_the_console(api: Api, tmp_path: Path) -> None:
    asyncio.run(_story(api, tmp_path))


async def _story(api: Api, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    async with browsing(CHROMIUM, tmp_path / "profile", f"{api.base}/#/topics") as page:
        await page.click("New topic")
        await page.fill("name", "orders")
        await page.click("Make it", "dialog")
        await page.sees("Nobody reads it now.")
        await page.click("Publish")
        await page.fill("text", '{"order": 7}')
        await page.fill("key", "c1")
        await page.click("Publish", "dialog")
        await page.sees('"order": 7')
        await asyncio.to_thread(api.join, "billing", "orders")
        (message,) = await asyncio.to_thread(api.poll, "billing")
        await page.key("3")
        await page.sees("round-robin")
        await page.click("billing")
        await page.sees("abel")
        await page.sees("Under way (1)")
        settle = {"receipts": [message["receipt"]], "reason": "no such customer"}
        await asyncio.to_thread(lambda: api.post("/v1/groups/billing/reject", **settle))
        await page.key("4")
        await page.sees("No replay yet.")
        await page.click("orders", "main")
        await page.sees("no such customer")
        await page.click("orders:0:0", "main")
        await page.until("document.querySelector('dialog').open")
        await page.sees('"order": 7')
        await page.click("Close", "dialog")
        await page.click("Replay…")
        await page.sees("1 to orders")
        await page.click("Replay", "dialog")
        await page.sees("1 of 1")
        await page.until("!!document.querySelector('main .pill.done')")
        (again,) = await asyncio.to_thread(lambda: api.poll("billing", timeout="5s"))
        assert text(again) == '{"order": 7}'
        assert page.troubles == []


@needs_browser
def test_a_message_is_consumed_and_rejected_and_levels_and_settings_are_changed_through_the_console(
    api: Api, tmp_path: Path
) -> None:
    asyncio.run(_consumer(api, tmp_path))


async def _consumer(api: Api, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    for value in ("one", "two"):
        await asyncio.to_thread(api.publish, "orders", value)
    async with browsing(CHROMIUM, tmp_path / "profile", f"{api.base}/#/groups") as page:
        await page.click("Consume…")
        await page.fill("group", "billing")
        await page.fill("topics", "orders")
        await page.click("Take a message", "dialog")
        await page.sees("orders:0:0")
        await page.click("Acknowledge", "dialog")
        await page.sees("Acknowledged")
        await page.until("!document.querySelector('dialog').open")
        await page.click("billing", "main")
        await page.click("Take a message", "main")
        await page.sees("orders:0:1")
        await page.fill("reason", "no such customer")
        await page.click("Reject", "dialog")
        await page.until("!document.querySelector('dialog').open")
        await page.key("4")
        await page.sees("No replay yet.")
        await page.click("orders", "main")
        await page.sees("no such customer")
        await page.click("Replay…")
        await page.click("Replay", "dialog")
        await page.sees("1 of 1")
        await page.until("!document.querySelector('dialog').open")
        await page.key("7")
        await page.click("Level…")
        await page.fill("level", "read-only")
        await page.fill("reason", "a new disk")
        await page.click("Change it", "dialog")
        await page.sees("Level: read-only")
        await page.sees("a new disk")
        await page.run("location.hash = '#/settings'")
        await page.until("!!document.querySelector('[aria-label=\"Change topic.lease\"]')")
        await page.run("document.querySelector('[aria-label=\"Change topic.lease\"]').click()")
        await page.fill("value", "9s")
        await page.click("Change it", "dialog")
        await page.sees("changed at run time")
        assert page.troubles == []


@needs_browser
def test_what_is_marked_stays_marked_and_a_broker_that_is_gone_is_said(api: Api, tmp_path: Path) -> None:
    asyncio.run(_gone(api, tmp_path))


async def _gone(api: Api, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    await asyncio.to_thread(lambda: api.post("/v1/topics", name="jobs", lanes=True))
    async with browsing(CHROMIUM, tmp_path / "profile", f"{api.base}/#/topics/jobs") as page:
        await page.sees("Nobody reads it now.")
        assert await page.run("document.querySelector('main select').value") == "normal"
        await page.run("getSelection().selectAllChildren(document.querySelector('h1'))")
        asked = "performance.getEntriesByType('resource').filter((each) => each.name.endsWith('/health')).length"
        before = await page.run(asked)
        await page.run("dispatchEvent(new Event('hashchange'))")
        await page.until(f"{asked} > {before}")
        assert await page.run("getSelection().toString()") == "jobs"
        await page.run("getSelection().removeAllRanges()")
        await asyncio.to_thread(lambda: api.publish("jobs", "fresh"))
        await page.sees("fresh")
        assert await page.run("document.querySelector('#banner').hidden")
        await asyncio.to_thread(api.house.stop)
        await page.run("dispatchEvent(new Event('hashchange'))")
        await page.until("!document.querySelector('#banner').hidden")
        await page.sees("The broker does not answer.")
        await page.sees("fresh")
        assert page.troubles == []


@needs_browser
def test_values_that_are_large_binary_or_mean_to_mislead_are_shown_for_what_they_are(api: Api, tmp_path: Path) -> None:
    asyncio.run(_values(api, tmp_path))


async def _values(api: Api, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    large, raw = "x" * 200_000 + "the end", base64.b64encode(bytes(range(128, 256))).decode()
    await asyncio.to_thread(lambda: api.publish("orders", large))
    await asyncio.to_thread(lambda: api.post("/v1/topics/orders/publish", value=raw))
    await asyncio.to_thread(lambda: api.publish("orders", "abc \u202e def <b>not bold</b>"))
    async with browsing(CHROMIUM, tmp_path / "profile", f"{api.base}/#/topics/orders") as page:
        await page.sees("abc \\u202e def <b>not bold</b>")
        assert await page.run("document.querySelector('main').innerText.length") < 5_000
        await page.click("0", "main")
        await page.sees("200,007 bytes, the first 65,536 are shown")
        assert await page.run("document.querySelector('dialog').innerText.includes('the end')") is False
        await page.run(
            "{ const make = URL.createObjectURL; URL.createObjectURL = (it) => make((globalThis.saved = it)); }"
        )
        await page.click("Save…", "dialog")
        assert await page.run("saved.text()") == large
        await page.click("Close", "dialog")
        await page.click("1", "main")
        await page.sees("000070  f0 f1 f2")
        await page.sees("128 bytes, not text")
        pages = "performance.getEntriesByType('resource').filter((each) => each.name.includes('/messages?')).length"
        looks = "performance.getEntriesByType('resource').filter((each) => each.name.endsWith('/subscribers')).length"
        await page.run("location.hash = '#/groups'")
        await page.until("!document.querySelector('dialog').open")
        await page.run("location.hash = '#/topics/orders'")
        before, seen = await page.run(pages), await page.run(looks)
        await page.until(f"{looks} >= {seen} + 3")
        assert await page.run(pages) <= before + 1, "what is stored is not asked for at each look"
        assert page.troubles == []


@needs_browser
@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_every_page_shows_itself_without_trouble_and_within_its_width(
    api: Api, tmp_path: Path, theme: str, width: int
) -> None:
    api.join("billing", "orders")
    api.publish("orders", "x")
    asyncio.run(_pages(api, tmp_path, theme, width))


async def _pages(api: Api, tmp_path: Path, theme: str, width: int) -> None:
    assert CHROMIUM is not None
    pages = {
        "": "Busiest topics",
        "topics": "orders",
        "topics/orders": "Subscribers",
        "groups": "billing",
        "groups/billing": "abel",
        "dead": "None.",
        "connections": "abel",
        "settings": "topic.lease",
        "health": "Components",
        "trace/orders%3A0%3A0": "Where it is",
    }
    async with browsing(CHROMIUM, tmp_path / "profile", f"{api.base}/?theme={theme}", width) as page:
        await page.until("document.querySelector('nav a[aria-current]')?.innerText === 'Overview'")
        for place, shows in pages.items():
            await page.run(f"location.hash = '#/{place}'")
            await page.sees(shows)
            overflow = await page.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert overflow <= 0, f"{place} is wider than the screen by {overflow}"
            assert len(await page.picture()) > 5_000
        assert page.troubles == []
