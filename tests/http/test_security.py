"""Tokens, roles, TLS, and the rule about listening to the world."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from dovetail.core.access import Access, Role
from dovetail.core.frames import ErrorCode, FrameType
from dovetail.core.wire import Hello
from dovetail.runtime.config import Config
from dovetail.runtime.exits import Exit
from dovetail.runtime.http.app import ROUTES
from dovetail.runtime.http.routing import Route
from dovetail.runtime.security import (
    Entry,
    Insecure,
    Keyring,
    Security,
    digest_of,
    new_token,
    read_entries,
    write_entries,
)
from dovetail.runtime.server import Server, StartFailed
from tests.broker.raw import Raw

TOKENS = {name: new_token() for name in ("reader", "writer", "admin", "chief", "single", "late", "orders", "slow")}


@pytest.fixture
def tokens(tmp_path: Path) -> str:
    path = str(tmp_path / "tokens.yaml")
    said = {
        "reader": ("read", ("#",), "", 0),
        "writer": ("write", ("#",), "", 0),
        "admin": ("admin", ("#",), "", 0),
        "chief": ("admin", ("orders.#",), "", 0),
        "single": ("read", ("*",), "", 0),
        "late": ("admin", ("#",), "2020-01-01T00:00:00+00:00", 0),
        "orders": ("write", ("orders.#",), "", 0),
        "slow": ("admin", ("#",), "", 1),
    }
    write_entries(path, [Entry(n, r, digest_of(TOKENS[n]), t, e, rate) for n, (r, t, e, rate) in said.items()])
    return path


@contextmanager
def running(config: Config) -> Iterator[Server]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        server = asyncio.run_coroutine_threadsafe(Server.start(config), loop).result(30)
        yield server
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def config_of(tmp_path: Path, **more: Any) -> Config:
    chosen = {"listen": "127.0.0.1:0", "http": "127.0.0.1:0", "drain_ms": 200, **more}
    return Config(data=str(tmp_path / "data"), **chosen)


def ask(server: Server, method: str, path: str, token: str | None, body: object = None) -> int:
    """The status of a request."""
    return answer_of(server, method, path, token, body)[0]


def told(server: Server, method: str, path: str, token: str | None, body: object = None) -> Any:
    """What a request that succeeds is answered."""
    status, answer = answer_of(server, method, path, token, body)
    assert status < 300, answer
    return json.loads(answer)


def answer_of(server: Server, method: str, path: str, token: str | None, body: object = None) -> tuple[int, bytes]:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"http://127.0.0.1:{server.http_port}{path}", data, method=method)
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def concrete(route: Route) -> str:
    path = route.path
    for name in ("topic", "group", "member", "offset", "id", "message_id"):
        path = path.replace(f"{{{name}}}", "1" if name in ("offset", "id") else "x")
    return path


def test_every_route_asks_for_its_role(tmp_path: Path, tokens: str) -> None:
    with running(config_of(tmp_path, tokens=tokens)) as server:
        for route in ROUTES:
            where = (server, route.method, concrete(route))
            if route.role is Role.NONE:
                assert ask(*where, None) == 200
                continue
            for wrong in (None, "", "nonsense", TOKENS["late"], TOKENS["admin"] + "x"):
                assert ask(*where, wrong) == 401, (route.path, wrong)
            if route.role > Role.READ:
                assert ask(*where, TOKENS["reader"]) == 403, route.path
            if route.role > Role.WRITE:
                assert ask(*where, TOKENS["writer"]) == 403, route.path


def test_a_token_counts_for_its_topics_only(tmp_path: Path, tokens: str) -> None:
    with running(config_of(tmp_path, tokens=tokens)) as server:
        message = {"text": "x"}
        assert ask(server, "POST", "/v1/topics/orders.eu/publish", TOKENS["orders"], message) == 201
        assert ask(server, "POST", "/v1/topics/billing/publish", TOKENS["orders"], message) == 403
        assert ask(server, "POST", "/v1/topics/billing/publish", TOKENS["writer"], message) == 201
        assert ask(server, "GET", "/v1/topics/billing/messages", TOKENS["orders"]) == 403
        join = {"consumerId": "abel", "topics": ["orders.*"]}
        assert ask(server, "POST", "/v1/groups/g/join", TOKENS["orders"], join) == 200
        assert ask(server, "POST", "/v1/groups/g/join", TOKENS["orders"], {**join, "topics": ["#"]}) == 403
        assert ask(server, "GET", "/v1/trace/billing:0:0", TOKENS["orders"]) == 403


def test_nobody_is_a_member_that_reads_more_than_the_token_may(tmp_path: Path, tokens: str) -> None:
    with running(config_of(tmp_path, tokens=tokens)) as server:
        ask(server, "POST", "/v1/topics/billing/publish", TOKENS["writer"], {"text": "secret"})
        join = {"consumerId": "paul", "topics": ["billing"]}
        assert ask(server, "POST", "/v1/groups/pay/join", TOKENS["reader"], join) == 200
        paul = {"member": "paul", "timeout": "0s"}
        assert ask(server, "GET", "/v1/groups/pay/poll?member=paul&timeout=0s", TOKENS["orders"]) == 403
        assert ask(server, "POST", "/v1/groups/pay/poll", TOKENS["orders"], paul) == 403
        assert ask(server, "POST", "/v1/groups/pay/poll", TOKENS["reader"], paul) == 200
        here = {"topic": "billing", "partition": 0, "offset": 0, "member": "paul"}
        for what in ("ack", "nack", "reject", "extend"):
            assert ask(server, "POST", f"/v1/groups/pay/{what}", TOKENS["orders"], here) == 403, what
        commit = {"member": "paul", "offsets": [{"topic": "billing", "partition": 0, "offset": 1}]}
        member = {"member": "paul"}
        for what, body in (("commit", commit), ("heartbeat", member), ("leave", member)):
            assert ask(server, "POST", f"/v1/groups/pay/{what}", TOKENS["orders"], body) == 403, what
        assert ask(server, "POST", "/v1/groups/pay/ack", TOKENS["reader"], here) == 200


def test_an_admin_of_some_topics_is_not_one_of_the_broker(tmp_path: Path, tokens: str) -> None:
    with running(config_of(tmp_path, tokens=tokens)) as server:
        for topic in ("x", "orders.eu"):
            assert ask(server, "POST", "/v1/topics", TOKENS["admin"], {"name": f"{topic}.dlq"}) == 201
            assert ask(server, "POST", f"/v1/topics/{topic}.dlq/publish", TOKENS["admin"], {"text": "dead"}) == 201
        for route in ROUTES:
            if route.role is Role.ADMIN:
                body = {"name": "x"} if route.path == "/v1/topics" else None
                assert ask(server, route.method, concrete(route), TOKENS["chief"], body) == 403, route.path
        mine, replay = "/v1/topics/orders.new", "/v1/dlq/orders.eu/replay"
        assert ask(server, "POST", "/v1/topics", TOKENS["chief"], {"name": "orders.new"}) == 201
        assert ask(server, "PATCH", mine, TOKENS["chief"], {"max_retries": 1}) == 200
        assert ask(server, "DELETE", mine, TOKENS["chief"]) == 200
        assert ask(server, "POST", replay, TOKENS["chief"], {"to": "x", "dry_run": True}) == 403
        assert ask(server, "POST", replay, TOKENS["chief"], {"dry_run": True}) == 202


def test_headers_that_anybody_may_write_lead_to_no_other_topic(tmp_path: Path, tokens: str) -> None:
    with running(config_of(tmp_path, tokens=tokens)) as server:
        ask(server, "POST", "/v1/topics/billing/publish", TOKENS["writer"], {"text": "secret"})
        forged = {"text": "x", "headers": {"dovetail-id": "billing:0:0", "dovetail-topic": "billing"}}
        for topic in ("orders.eu", "orders.eu.dlq"):
            assert ask(server, "POST", f"/v1/topics/{topic}/publish", TOKENS["orders"], forged) == 201
        places = {
            each["message_id"] for each in told(server, "GET", "/v1/trace/orders.eu:0:0", TOKENS["orders"])["life"]
        }
        assert places == {"orders.eu:0:0"}
        plan = told(server, "POST", "/v1/dlq/orders.eu/replay", TOKENS["admin"], {"dry_run": True})
        assert plan["targets"] == {"orders.eu": 1}


def test_what_waits_until_it_is_due_is_shown_to_readers_of_its_topic(tmp_path: Path, tokens: str) -> None:
    with running(config_of(tmp_path, tokens=tokens)) as server:
        delayed = {"text": "secret", "delay": "1h"}
        ids = {
            topic: told(server, "POST", f"/v1/topics/{topic}/publish", TOKENS["admin"], delayed)["message_id"]
            for topic in ("billing.eu", "orders")
        }
        assert ask(server, "GET", f"/v1/trace/{ids['orders']}", TOKENS["single"]) == 200
        assert ask(server, "GET", f"/v1/trace/{ids['billing.eu']}", TOKENS["single"]) == 403


def test_who_came_with_a_token_that_is_not_good_any_more_has_to_go(tmp_path: Path, tokens: str) -> None:
    with running(config_of(tmp_path, tokens=tokens)) as server:
        clients = {name: Raw(server.port) for name in ("writer", "orders")}
        for name, client in clients.items():
            assert _status(client, FrameType.HELLO, Hello(name, TOKENS[name]).encode()) == 0
        write_entries(tokens, [each for each in read_entries(tokens) if each.name != "orders"])
        assert ask(server, "POST", "/admin/reload", TOKENS["admin"]) == 200
        gone = clients.pop("orders")
        mistake = gone.mistake()
        assert mistake.code == ErrorCode.UNAUTHORIZED
        assert "token of 'orders'" in mistake.text
        gone.wait_closed()
        gone.close()
        assert _status(clients["writer"], FrameType.HEARTBEAT, b"") == 0
        clients["writer"].close()


def test_the_audit_names_who_tried_without_being_an_admin(tmp_path: Path, tokens: str) -> None:
    with running(config_of(tmp_path, tokens=tokens)) as server, capture_logs() as said:
        assert ask(server, "POST", "/admin/shutdown", TOKENS["reader"]) == 403
        assert ask(server, "POST", f"/admin/shutdown?token={TOKENS['admin']}", "nonsense") == 401
        assert ask(server, "POST", f"/admin/readonly?token={TOKENS['admin']}", TOKENS["admin"]) == 422
        assert ask(server, "POST", "/admin/readonly", TOKENS["admin"], {"on": False}) == 200
    tries = [(each["caller"], each["outcome"]) for each in said if each["event"] == "admin"]
    assert tries == [("reader", "forbidden"), ("", "unauthorized"), ("admin", "invalid"), ("admin", "done")]
    assert not any(token in repr(said) for token in TOKENS.values())


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("Origin", "https://elsewhere.example", 403),
        ("Origin", "null", 403),
        ("Host", "elsewhere.example", 403),
        ("Host", "localhost:7480", 200),
        ("Accept", "text/html", 200),
    ],
)
def test_a_page_of_another_site_can_do_nothing_here(tmp_path: Path, name: str, value: str, status: int) -> None:
    with running(config_of(tmp_path)) as server:
        request = urllib.request.Request(f"http://127.0.0.1:{server.http_port}/admin/readonly", b'{"on": false}')
        request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                found = answer.status
        except urllib.error.HTTPError as error:
            with error:
                found = error.code
        assert found == status


def test_a_token_has_its_rate(tmp_path: Path, tokens: str) -> None:
    with running(config_of(tmp_path, tokens=tokens)) as server:
        assert {ask(server, "GET", "/v1/topics", TOKENS["slow"]) for _ in range(4)} == {200, 429}


def test_the_wire_asks_for_a_token_too(tmp_path: Path, tokens: str) -> None:
    with running(config_of(tmp_path, tokens=tokens)) as server:
        client = Raw(server.port)
        assert _status(client, FrameType.HELLO, Hello("t", "nonsense").encode()) == 4
        client.close()
        client = Raw(server.port)
        assert _status(client, FrameType.HEARTBEAT, b"") == 4
        client.close()
        client = Raw(server.port)
        assert _status(client, FrameType.HELLO, Hello("t", TOKENS["orders"]).encode()) == 0
        assert _status(client, FrameType.SUBSCRIBE, _subscribe("orders.*")) == 0
        assert _status(client, FrameType.SUBSCRIBE, _subscribe("#")) == 4
        client.close()


def _status(client: Raw, type: int, payload: bytes) -> int:
    return client.ask(type, payload).status


def _subscribe(pattern: str) -> bytes:
    from dovetail.core.wire import Subscribe

    return Subscribe(pattern, "", 10, True).encode()


@pytest.mark.parametrize("where", [{"listen": "0.0.0.0:0"}, {"http": "0.0.0.0:0"}, {"listen": "[::]:0"}])
def test_a_broker_does_not_listen_to_the_world_without_tokens(tmp_path: Path, where: dict[str, str]) -> None:
    with pytest.raises(StartFailed) as failed:
        asyncio.run(Server.start(config_of(tmp_path, **where)))
    assert failed.value.code is Exit.USAGE
    assert "dovetail token add" in str(failed.value)
    assert not (tmp_path / "data").exists(), "nothing was touched"


def test_with_tokens_it_may_listen_anywhere(tmp_path: Path, tokens: str) -> None:
    Security(config_of(tmp_path, listen="0.0.0.0:7400", tokens=tokens))


def test_tokens_are_read_again_and_a_bad_file_changes_nothing(tokens: str) -> None:
    keyring = Keyring(tokens)
    Path(tokens).write_text("- nonsense")
    with pytest.raises(Insecure):
        keyring.reload()
    assert keyring.admit(TOKENS["admin"]) == Access("admin", Role.ADMIN, ("#",))
    write_entries(tokens, [])
    keyring.reload()
    assert keyring.admit(TOKENS["admin"]) is None


@pytest.mark.parametrize(
    "text",
    [
        "x: 1",
        "- {name: a}",
        "- {name: a, role: king, sha256: ab}",
        "- {name: a, role: read, sha256: zz}",
        "- {name: a, role: read, sha256: ab, topics: ['a..b']}",
        "- {name: a, role: read, sha256: ab, expires: someday}",
        "- {name: a, role: read, sha256: ab, colour: red}",
        "\x00",
    ],
)
def test_a_file_of_tokens_that_is_not_right_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "t").write_text(text)
    with pytest.raises(Insecure):
        Keyring(str(tmp_path / "t"))


def test_the_file_keeps_no_token_and_only_its_owner_reads_it(tokens: str) -> None:
    text = Path(tokens).read_text()
    assert not any(token in text for token in TOKENS.values())
    assert Path(tokens).stat().st_mode & 0o077 == 0


def test_the_file_of_tokens_stays_its_owners_whoever_writes_it(tokens: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("NOT ROOT: nobody else's file can be had")
    os.chown(tokens, 10_001, 10_001)
    write_entries(tokens, read_entries(tokens)[:1])
    found = Path(tokens).stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (10_001, 10_001, 0o600)


def test_both_ports_speak_tls(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    try:
        subprocess.run([*words, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("NO OPENSSL: TLS was not tested")
    with running(config_of(tmp_path, tls_cert=str(cert), tls_key=str(key))) as server:
        context = ssl.create_default_context(cafile=str(cert))
        with urllib.request.urlopen(
            f"https://127.0.0.1:{server.http_port}/ready", context=context, timeout=20
        ) as answer:
            assert answer.status == 200

        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=20) as bare,
            context.wrap_socket(bare, server_hostname="127.0.0.1") as secure,
        ):
            secure.sendall(b"nonsense that is no frame")
            assert b"MQUE" in secure.recv(4096)
    with pytest.raises(Insecure):
        Security(config_of(tmp_path, tls_cert=str(key), tls_key=str(cert)))
