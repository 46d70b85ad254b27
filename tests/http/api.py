"""A client of the HTTP API for tests: requests in, JSON out, refusals as they are."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlencode

from tests.broker.house import House


class Refused(AssertionError):
    """An answer that is not a success, with its error."""

    def __init__(self, status: int, error: dict[str, Any], headers: dict[str, str]) -> None:
        super().__init__(f"{status}: {error}")
        self.status = status
        self.error = error
        self.headers = headers


class Api:
    def __init__(self, house: House) -> None:
        self.house = house
        self.base = f"http://127.0.0.1:{house.http_port}"
        self.token = ""
        self.headers: dict[str, str] = {}

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """The answer's JSON; raises `Refused`."""
        if query:
            path += "?" + urlencode(query)
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, method=method)
        for name, value in self.headers.items():
            request.add_header(name, value)
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                self.status = answer.status
                self.answer_headers = dict(answer.headers)
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, json.loads(error.read())["error"], dict(error.headers)) from None

    def metrics(self) -> str:
        """The figures for Prometheus, as text."""
        with urllib.request.urlopen(f"{self.base}/metrics", timeout=20) as answer:
            return str(answer.read().decode())

    def get(self, path: str, **query: Any) -> Any:
        return self.call("GET", path, **query)

    def post(self, path: str, **body: Any) -> Any:
        return self.call("POST", path, body)

    def publish(self, topic: str, text: str, **more: Any) -> Any:
        return self.post(f"/v1/topics/{topic}/publish", text=text, **more)

    def join(self, group: str, *topics: str, member: str = "abel", **more: Any) -> Any:
        return self.post(f"/v1/groups/{group}/join", consumerId=member, topics=list(topics), **more)

    def poll(self, group: str, member: str = "abel", **more: Any) -> list[Any]:
        found: list[Any] = self.post(f"/v1/groups/{group}/poll", member=member, **more)["messages"]
        return found


def text(message: dict[str, Any]) -> str:
    return base64.b64decode(message["value"]).decode()
