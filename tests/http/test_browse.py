"""Claims about large browses: they come in pieces, and messages do not wait for them."""

from __future__ import annotations

import asyncio
import base64
import json
import socket

import pytest

from dovetail.runtime.http.aside import RESTS, Aside
from tests.http.api import Api


def _chunks(api: Api, path: str) -> list[bytes]:
    """The pieces in which an answer was sent."""
    with socket.create_connection(("127.0.0.1", api.house.http_port), 20) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        with line.makefile("rb") as answer:
            while answer.readline() != b"\r\n":
                pass
            found: list[bytes] = []
            while size := int(answer.readline(), 16):
                found.append(answer.read(size))
                answer.readline()
            return found


@pytest.mark.parametrize("size", [10, 2_000, 40_000])
def test_a_large_page_is_made_and_sent_in_small_pieces(api: Api, size: int) -> None:
    values = [b"%d " % number + b"v" * size for number in range(300)]
    messages = [{"value": base64.b64encode(each).decode()} for each in values]
    for first in range(0, 300, 100):
        api.post("/v1/topics/large/publish/batch", messages=messages[first : first + 100])
    for offset, limit in ((0, 300), (37, 200), (290, 100)):
        chunks = _chunks(api, f"/v1/topics/large/messages?offset={offset}&limit={limit}")
        page = json.loads(b"".join(chunks))
        wanted = values[offset : offset + limit]
        assert [base64.b64decode(each["value"]) for each in page["messages"]] == wanted
        assert page.get("next") == (offset + limit if offset + limit < 300 else None)
        assert max(chunk.count(b'"offset"') for chunk in chunks) <= 32
        assert max(map(len, chunks)) < 3 * max(size, 32 << 10)


def test_an_empty_page_says_where_the_log_begins_and_ends(api: Api) -> None:
    api.post("/v1/topics/small/publish", text="one")
    assert api.get("/v1/topics/small/messages", offset=1) == {"messages": [], "start": 0, "end": 1}


def test_pieces_are_done_one_at_a_time_and_rest_only_beside_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 0.004, 1.0, 1.004])
    rests: list[float] = []
    sleep = asyncio.sleep

    async def slept(seconds: float) -> None:
        rests.append(seconds)
        await sleep(0)

    monkeypatch.setattr("dovetail.runtime.http.aside.time.thread_time", lambda: next(times))
    monkeypatch.setattr("dovetail.runtime.http.aside.asyncio.sleep", slept)
    steps = [7]
    inside: list[str] = []

    async def work(name: str, aside: Aside) -> None:
        async with aside:
            inside.append(name)
            if name == "second":
                # Nothing was decided since the first piece: nobody is to be let by.
                assert rests == [pytest.approx(RESTS * 0.004)]

    async def both() -> None:
        aside = Aside(lambda: steps[0])
        await asyncio.gather(work("first", aside), work("second", aside))

    asyncio.run(both())
    assert inside == ["first", "second"]
    assert rests == [pytest.approx(RESTS * 0.004), 0]
