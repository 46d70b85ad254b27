"""What people, scanners and broken programs send: each gets an answer in the one shape, and nobody else notices."""

from __future__ import annotations

import gzip
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dovetail.runtime.http import app, limited
from tests.http.api import Api, Refused
from tests.http.conftest import Start

PUBLISH = b"POST /v1/topics/orders/publish"
ERROR = {"code", "message", "details", "suggestions", "request_id", "timestamp"}


def say(api: Api, data: bytes) -> tuple[int, dict[str, Any]]:
    """Send bytes, and give the status and the JSON that come back."""
    with socket.create_connection(("127.0.0.1", api.house.http_port), timeout=30) as connection:
        connection.sendall(data)
        return answer_of(connection)


def answer_of(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += _more(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    while len(body) < length:
        body += _more(connection)
    return int(head.split()[1]), json.loads(body)


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(65_536)
    assert data, "closed without an answer"
    return data


def request(line: bytes, *headers: bytes, body: bytes = b"", host: bytes = b"Host: 127.0.0.1") -> bytes:
    length = [b"Content-Length: %d" % len(body)] if body else []
    return b"\r\n".join([line + b" HTTP/1.1", host, *headers, *length, b"", body])


def test_what_is_no_request_is_told_so(api: Api) -> None:
    for data, status in (
        (request(PUBLISH, body=b'{"text":"\xff"}'), 422),
        (request(PUBLISH, body=b'{"text":"\\ud800"}'), 422),
        (request(PUBLISH, body=b'{"text":' + b"[" * 50_000 + b"}"), 422),
        (request(PUBLISH, b"Content-Encoding: gzip", body=b"no gzip"), 415),
        (request(PUBLISH, b"Content-Encoding: gzip", body=gzip.compress(b'{"text":"x"}')), 415),
        (request(PUBLISH, body=b'{"text":"x","key":"%s"}' % (b"k" * (1 << 20))), 413),
        (request(PUBLISH, body=b'{"text":"x","headers":{"%s":""}}' % (b"h" * (1 << 20))), 413),
        (request(b"GET /v1/topics", host=b"Host: [::1"), 422),
        (request(b"GET /v1/topics", host=b"Host: \xff"), 403),
        (request(b"GET /v1/topics", b"Origin: http://["), 422),
        (request(b"GET /v1/topics", b"Origin: \xff\xfe"), 403),
        (request(b"GET /v1/topics/" + b"a" * 20_000), 400),
        (request(b"GET /ready", b"X-Long: " + b"a" * 100_000), 400),
        (request(b"GET /ready", *[b"X-%d: a" % number for number in range(5_000)]), 400),
        (request(b"GET /ready", b"X-Request-Id: \x01"), 400),
        (request(PUBLISH, b"Content-Length: -5"), 400),
        (request(PUBLISH, b"Content-Length: 5", b"Transfer-Encoding: chunked"), 400),
        (b"\x00\xff\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET /ready HTTP/9.9\r\n\r\n", 400),
        (b"GET /ready HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    ):
        found, answer = say(api, data)
        assert found == status, (data[:100], found, answer)
        assert answer["error"].keys() == ERROR, data[:100]
        assert answer["error"]["message"], data[:100]
    assert api.get("/ready") == {"ready": True}
    assert api.get("/v1/topics")["topics"] == []


def test_names_may_hold_what_people_write_where_they_may(api: Api) -> None:
    member, group = "zoë 🚀 <b>", "équipe de nuit"
    api.join("g", "orders", member=member)
    api.post(f"/v1/groups/{quoted(group)}/join", consumerId=member, topics=["orders"])
    api.publish("orders", "ünïcødé", key="ключ", headers={"x-ü": "✓"})
    (message,) = api.post(f"/v1/groups/{quoted(group)}/poll", member=member)["messages"]
    assert (message["key"], message["headers"]) == ("ключ", {"x-ü": "✓"})
    assert group in [each["name"] for each in api.get("/v1/groups")["groups"]]
    assert f'member="{member}"' in api.metrics()
    for topic in ("ünï", "a b", "a..b", "~health", "%00", "a" * 241):
        with pytest.raises(Refused) as refused:
            api.publish(quoted(topic), "x")
        assert refused.value.status == 422, topic


def quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


def test_who_is_slow_is_ended_and_holds_nobody_up(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(limited.HANDLING, "keepalive_timeout", 1.0)
    monkeypatch.setattr(app, "BODY_S", 0.5)
    api = start()
    place = ("127.0.0.1", api.house.http_port)
    heads = [socket.create_connection(place, timeout=30) for _ in range(50)]
    for each in heads:
        each.sendall(b"GET /ready HTTP/1.1\r\nHost: 127.0.0.1\r\n")
    assert api.get("/ready") == {"ready": True}
    with socket.create_connection(place, timeout=30) as slow:
        slow.sendall(request(PUBLISH, b"Content-Length: 1000")[:-2] + b"\r\n{")
        status, answer = answer_of(slow)
        assert (status, answer["error"]["code"]) == (408, "too_slow")
    for each in heads:
        assert each.recv(1) == b""
        each.close()


def test_topics_that_many_make_fill_and_delete_at_once_end_in_clear_answers(api: Api) -> None:
    api.join("crew", "hot.*")

    def work(number: int) -> set[int]:
        mine, seen = Api(api.house), set()
        calls = (
            lambda: mine.post("/v1/topics", name="hot.topic", partitions=2),
            lambda: mine.publish("hot.topic", f"{number}"),
            lambda: mine.call("DELETE", "/v1/topics/hot.topic?force=true"),
            lambda: mine.get("/v1/topics/hot.topic/messages"),
            lambda: mine.get("/v1/topics/hot.topic"),
            lambda: mine.poll("crew", member="abel", timeout="0s"),
            lambda: mine.get("/v1/groups/crew/lag"),
            lambda: mine.call("PATCH", "/v1/topics/hot.topic", {"lease": "9s"}),
        )
        for turn in range(40):
            try:
                calls[(number + turn * 3) % len(calls)]()
                seen.add(200)
            except Refused as refused:
                seen.add(refused.status)
        return seen

    with ThreadPoolExecutor(8) as pool:
        seen = set().union(*pool.map(work, range(8)))
    assert seen <= {200, 404, 409, 422, 429}, seen
    assert api.get("/health")["status"] != "failed"
    api.publish("hot.topic", "at last")
