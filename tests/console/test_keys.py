"""The console by keyboard alone, key by key, in a real browser: what each does, and where the focus is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.console.browser import Page, browsing
from tests.console.test_console import CHROMIUM, api, needs_browser
from tests.http.api import Api

__all__ = ["api"]
pytestmark = needs_browser

SECTIONS = ["Overview", "Topics", "Groups", "Dead letters", "Connections", "Settings", "Health"]
FOCUS = """(() => {
  const node = document.activeElement;
  return node.getAttribute("aria-label") || node.name || node.innerText.trim() || node.tagName;
})()"""


def at(api: Api, folder: Path, place: str, story: Callable[[Page], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        assert CHROMIUM is not None
        async with browsing(CHROMIUM, folder / "profile", f"{api.base}/#/{place}") as page:
            await story(page)
            assert page.troubles == []

    asyncio.run(run())


async def focus(page: Page) -> str:
    """What has the focus: its label, name or text, without a count beside it."""
    return str(await page.run(FOCUS)).split("\n")[0]


async def until_focus(page: Page, wanted: str) -> None:
    await page.until(f"{FOCUS}.split('\\n')[0] === {json.dumps(wanted)}")


async def is_outlined(page: Page) -> bool:
    return bool(await page.run("getComputedStyle(document.activeElement).outlineStyle === 'solid'"))


async def tab_to(page: Page, wanted: str) -> None:
    """Press Tab until something has the focus, a hundred times at most."""
    for _ in range(100):
        await page.key("Tab")
        if await focus(page) == wanted:
            return
    raise AssertionError(f"no way to {wanted!r} by Tab")


def test_tab_goes_through_the_page_in_order_and_shows_where_it_is(api: Api, tmp_path: Path) -> None:
    async def story(page: Page) -> None:
        await page.sees("No topics yet")
        order = ["Skip to content", "Dovetail", *SECTIONS, "Find a message by its id", "ok", "Change colours"]
        for wanted in [*order, "Filter by name  ( / )", "New topic"]:
            await page.key("Tab")
            found = await focus(page)
            assert found == wanted or (wanted == "ok" and found == "warn")
            assert await is_outlined(page), wanted
        await page.key("Tab", shift=True)
        assert await focus(page) == "Filter by name  ( / )"

    at(api, tmp_path, "topics", story)


def test_the_skip_link_leads_to_the_content_of_the_same_page(api: Api, tmp_path: Path) -> None:
    async def story(page: Page) -> None:
        await page.sees("No topics yet")
        await page.key("Tab")
        await page.key("Enter")
        assert await page.run("document.activeElement.id") == "main"
        await page.key("Tab")
        assert await focus(page) == "Filter by name  ( / )"
        assert await page.run("location.hash") == "#/topics"

    at(api, tmp_path, "topics", story)


def test_numbers_lead_to_sections_and_a_question_mark_tells_the_keys(api: Api, tmp_path: Path) -> None:
    async def story(page: Page) -> None:
        await page.sees("No topics yet")
        for number, title in reversed(list(enumerate(SECTIONS, 1))):
            await page.key(str(number))
            await page.until(f"document.querySelector('h1')?.innerText === {title!r}")
            assert await page.run("document.querySelector('nav a[aria-current]').dataset.view")
        for close in ("Escape", "Enter"):
            await page.key("?")
            await page.until("document.querySelector('dialog').open")
            assert await focus(page) == "Close"
            await page.key("2")
            await page.key(close)
            await page.until("!document.querySelector('dialog').open")
        assert await page.run("location.hash") == "#/", "a key in a dialog is the dialog's"

    at(api, tmp_path, "topics", story)


def test_a_topic_is_made_published_to_filtered_and_deleted_without_a_mouse(api: Api, tmp_path: Path) -> None:
    async def story(page: Page) -> None:
        await page.sees("No topics yet")
        await page.key("n")
        await page.until("document.querySelector('dialog').open")
        assert await focus(page) == "name"
        await page.type("a..b")
        await page.key("Enter")
        assert await page.run("document.querySelector('dialog').open"), "a wrong name is not sent"
        for _ in range(4):
            await page.key("Backspace")
        await page.type("orders")
        await page.key("Enter")
        await page.sees("Nobody reads it now.")
        await page.key("n")
        await page.until("document.querySelector('dialog').open")
        assert await focus(page) == "text"
        await page.type("1n?/")
        await page.key("Tab")
        assert await focus(page) == "key"
        await page.type("k7")
        await page.key("Enter")
        await page.until("!document.querySelector('dialog').open")
        await page.sees("k7")
        await page.sees("1n?/")
        await page.key("2")
        await page.until("document.querySelector('h1')?.innerText === 'Topics'")
        await page.key("/")
        await page.type("nowhere")
        await page.sees("None matches.")
        assert await focus(page) == "Filter by name  ( / )", "what is typed stays typed"
        await page.key("Escape")
        await page.until("!document.body.innerText.includes('None matches.')")
        await tab_to(page, "orders")
        await page.key("Enter")
        await page.until("document.querySelector('h1')?.innerText === 'orders'")
        await tab_to(page, "Delete")
        await page.key("Enter")
        await page.until("document.querySelector('dialog').open")
        await page.key("Escape")
        await page.until("!document.querySelector('dialog').open")
        assert await focus(page) == "Delete", "the focus comes back to where it was"
        await page.key("Enter")
        await page.until("document.querySelector('dialog').open")
        await tab_to(page, "Delete")
        await page.key(" ")
        await page.sees("No topics yet")

    at(api, tmp_path, "topics", story)


def test_the_focus_stays_on_what_it_was_on_while_the_page_is_live(api: Api, tmp_path: Path) -> None:
    for name in ("orders", "stock"):
        api.publish(name, "x")

    async def story(page: Page) -> None:
        await page.sees("stock")
        await tab_to(page, "messages")
        await page.key("Enter")
        await page.until("!!document.querySelector('[aria-sort=descending]')")
        assert await focus(page) == "messages"
        await page.key("Enter")
        await page.until("!!document.querySelector('[aria-sort=ascending]')")
        await tab_to(page, "name")
        await page.key("Enter")
        await page.until("!!document.querySelector('[aria-sort]')")
        await tab_to(page, "stock")
        await asyncio.to_thread(api.publish, "a.new.topic", "x")
        await page.sees("a.new.topic")
        await until_focus(page, "stock")
        await page.key("Enter")
        await page.until("document.querySelector('h1')?.innerText === 'stock'")

    at(api, tmp_path, "topics", story)


def test_what_is_refused_in_a_dialog_is_said_in_it(api: Api, tmp_path: Path) -> None:
    api.publish("orders", "x")

    async def story(page: Page) -> None:
        await page.sees("orders")
        await page.key("n")
        await page.until("document.querySelector('dialog').open")
        await page.type("orders")
        await page.key("Enter")
        await page.until("document.querySelector('dialog .error')?.innerText.includes('exists already')")
        assert await focus(page) == "name"

    at(api, tmp_path, "topics", story)
