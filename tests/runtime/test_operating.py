"""`dovetail serve` as an operator has it: its log, the wire in it, signals, and what it says when it can't start."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail.core.frames import FrameType
from dovetail.core.wire import Hello
from dovetail.runtime.exits import Exit
from dovetail.runtime.security import Entry, digest_of, new_token, write_entries
from dovetail.runtime.server import listen_trouble
from tests.broker.raw import Raw

COMMAND = (sys.executable, "-m", "dovetail", "serve")


class Process:
    """A broker of its own, and the lines that it logs."""

    def __init__(self, data: Path, *words: str) -> None:
        places = ("--data", str(data), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-format", "json")
        self.process = subprocess.Popen([*COMMAND, *places, *words], stderr=subprocess.PIPE, text=True)
        self.lines: list[dict[str, Any]] = []
        ready = self.until("ready")
        self.port = int(ready["tcp"].rpartition(":")[2])
        self.api = f"127.0.0.1:{ready['http'].rpartition(':')[2]}"

    def until(self, event: str) -> dict[str, Any]:
        """The next line that says this."""
        assert self.process.stderr is not None
        for text in self.process.stderr:
            line = json.loads(text)
            self.lines.append(line)
            if line["event"] == event:
                return dict(line)
        raise AssertionError(f"it ended without saying {event!r}: {self.lines}")

    def hang_up(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def stop(self) -> int:
        self.process.terminate()
        _, rest = self.process.communicate(timeout=60)
        self.lines += [json.loads(line) for line in rest.splitlines()]
        return self.process.returncode


@contextmanager
def serving(data: Path, *words: str) -> Iterator[Process]:
    process = Process(data, *words)
    try:
        yield process
    finally:
        process.process.kill()
        process.process.communicate()


def test_a_message_is_followed_from_its_arrival_to_its_settle_and_the_wire_is_shown(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--trace-wire", "--log-level", "debug") as broker:
        with Raw(broker.port) as client:
            assert client.ask(FrameType.HELLO, Hello("tester", "dvt_secret").encode()).status == 0
        with Raw(broker.port) as client:
            client.subscribe("orders", "billing")
            (message_id,) = client.publish_all("orders", [b"the secret payload"])
            delivery = client.delivery()
            client.ack(delivery.id)
        assert broker.stop() == Exit.OK
    for line in broker.lines:
        assert line.keys() >= {"timestamp", "level", "component", "event"}, line
    told = [line["event"] for line in broker.lines if line.get("correlation_id") == message_id]
    assert told == ["arrived", "delivered", "settled"]
    frames = [line for line in broker.lines if line["component"] == "wire"]
    shown = [(line["way"], line["type"]) for line in frames]
    for each in (("in", "HELLO"), ("out", "RESPONSE"), ("in", "SUBSCRIBE"), ("in", "PUBLISH"), ("out", "DELIVERY")):
        assert each in shown
    text = json.dumps(broker.lines)
    assert "dvt_secret" not in text
    assert "the secret payload" not in text
    assert {line["event"] for line in broker.lines if line["component"] == "broker"} >= {"ready", "stopping", "stopped"}


def test_a_hang_up_reads_settings_again_and_says_what_takes_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "d.yaml"
    file.write_text("topic:\n  lease: 10s\n")
    with serving(tmp_path / "data", "--config", str(file)) as broker:
        topics = "topics:\n  'logs.#':\n    retention: 1h\n"
        file.write_text(f"topic:\n  lease: 20s\ntrace_wire: true\nstorage:\n  log_segment: 1MiB\n{topics}")
        broker.hang_up()
        assert broker.until("reloaded")["changed"] == ["trace_wire", "topic.lease", "topics"]
        assert broker.until("some settings take a restart")["settings"] == ["storage.log_segment"]
        file.write_text("topic:\n  leese: 20s\n")
        broker.hang_up()
        failed = broker.until("reload failed, nothing was changed")
        assert "did you mean 'topic.lease'" in failed["reason"]
        with urllib.request.urlopen(f"http://{broker.api}/admin/config", timeout=20) as answer:
            now = {each["key"]: (each["value"], each["origin"]) for each in json.loads(answer.read())["settings"]}
        assert now["topic.lease"] == ("20s", f"{file} line 2")
        assert now["topics.logs.#.retention"] == ("1h", f"{file} line 8")


def test_a_hang_up_reads_tokens_and_certificates_again(tmp_path: Path) -> None:
    cert, key, tokens = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "tokens.yaml"
    _make_certificate(cert, key)
    token = new_token()
    write_entries(str(tokens), [Entry("abel", "admin", digest_of(token))])
    words = ("--set", f"tls.cert={cert}", "--set", f"tls.key={key}", "--tokens", str(tokens))
    with serving(tmp_path / "data", *words) as broker:
        before = _certificate_of(broker.port)
        assert _certificate_of(int(broker.api.rpartition(":")[2])) == before
        _make_certificate(cert, key)
        write_entries(str(tokens), [])
        broker.hang_up()
        assert broker.until("reloaded")["files"] == [str(tokens), str(cert), str(key)]
        after = _certificate_of(broker.port)
        assert after != before
        assert _certificate_of(int(broker.api.rpartition(":")[2])) == after
        cert.write_text("nonsense")
        broker.hang_up()
        broker.until("reload failed, nothing was changed")
        assert _certificate_of(broker.port) == after


def _certificate_of(port: int) -> str:
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=20)


def _make_certificate(cert: Path, key: Path) -> None:
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-days", "1", "-subj", "/CN=localhost", "-keyout", str(key), "-out", str(cert)]
    try:
        subprocess.run(words, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("NO OPENSSL: the reload of certificates was not tested")


@pytest.mark.parametrize("option", ["--listen", "--http"])
def test_a_port_in_use_is_said_with_what_to_do(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        places = {"--listen": "127.0.0.1:0", "--http": "127.0.0.1:0", option: place}
        words = [word for pair in places.items() for word in pair]
        ended = subprocess.run(
            [*COMMAND, "--data", str(tmp_path / "data"), *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == Exit.UNAVAILABLE
    assert "ss -ltnp" in ended.stderr
    assert option in ended.stderr


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.EACCES, os.strerror(errno.EACCES)), "CAP_NET_BIND_SERVICE"),
        (OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL)), "ip addr"),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "ulimit -n"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "write an address"),
        (OSError(errno.EIO, os.strerror(errno.EIO)), "choose another address"),
    ],
)
def test_an_address_that_can_not_be_listened_on_is_said_with_what_to_do(error: OSError, says: str) -> None:
    text = listen_trouble("127.0.0.1", 80, error, "--listen")
    assert text.startswith("can't listen on 127.0.0.1:80: ")
    assert says in text
    assert "--listen" in text
