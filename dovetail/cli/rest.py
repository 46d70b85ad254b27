"""How commands for operators reach a broker: its HTTP API.

Promises  a refusal becomes one line with what to do next, and an exit code.
Never     retries: somebody watches.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import msgspec
import typer

from dovetail.cli.output import fail
from dovetail.runtime.exits import Exit

API = "http://127.0.0.1:7480"
Api = Annotated[str, typer.Option("--api", envvar="DOVETAIL_API", help="The broker's HTTP address.", show_default=True)]
Token = Annotated[str, typer.Option("--token", envvar="DOVETAIL_TOKEN", help="A token, where the broker wants one.")]
TIMEOUT_S = 30.0
IN_WORDS_OF_COMMANDS = {
    "GET /v1/topics lists those there are": "`dovetail topic list` shows those there are",
    "GET /v1/groups lists those there are": "`dovetail group list` shows those there are",
    "GET /openapi.json says what is": "see --help",
}
"""What the API suggests to its callers, as somebody at a terminal can do it."""


class NoAnswer(Exception):
    """The broker refused or can't be reached: the text says what to do, `code` is how a command ends that gives up."""

    def __init__(self, text: str, code: Exit) -> None:
        super().__init__(text)
        self.code = code


class Rest:
    """One broker's HTTP API."""

    def __init__(self, api: str, token: str = "") -> None:
        self._base = (api if "://" in api else f"http://{api}").rstrip("/")
        self._token = token

    def get(self, *path: str, **query: object) -> Any:
        """The answer to a GET; `path` in parts, each escaped."""
        return self._call("GET", path, None, query)

    def post(self, *path: str, **body: object) -> Any:
        """The answer to a POST; fields that are None are left out."""
        return self._call("POST", path, {name: value for name, value in body.items() if value is not None}, {})

    def patch(self, *path: str, **body: object) -> Any:
        """The answer to a PATCH."""
        return self._call("PATCH", path, body, {})

    def put(self, *path: str, **body: object) -> Any:
        """The answer to a PUT."""
        return self._call("PUT", path, body, {})

    def delete(self, *path: str, **query: object) -> Any:
        """The answer to a DELETE."""
        return self._call("DELETE", path, None, query)

    def _call(self, method: str, path: tuple[str, ...], body: object, query: dict[str, object]) -> Any:
        try:
            return self.ask(method, path, body, query)
        except NoAnswer as error:
            fail(str(error), error.code)

    def ask(self, method: str, path: tuple[str, ...], body: object, query: dict[str, object]) -> Any:
        """The answer to any request; raises `NoAnswer`."""
        said = {name: str(value) for name, value in query.items() if value not in (None, "")}
        url = "/".join((self._base, *(quote(part, safe="") for part in path))) + (f"?{urlencode(said)}" if said else "")
        request = urllib.request.Request(url, None if body is None else msgspec.json.encode(body), method=method)
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return msgspec.json.decode(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(error.code, error.read()) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            text = f"can't reach {self._base}: {reason}; is a broker running (`dovetail serve`), is --api right?"
            raise NoAnswer(text, Exit.UNAVAILABLE) from None


def _refused(status: int, body: bytes) -> NoAnswer:
    try:
        error = msgspec.json.decode(body)["error"]
        text = "; ".join([error["message"], *(IN_WORDS_OF_COMMANDS.get(each, each) for each in error["suggestions"])])
    except (msgspec.DecodeError, KeyError, TypeError):
        text = f"the broker answered with HTTP status {status}"
    if status in (401, 403):
        text += "; give a token with --token or DOVETAIL_TOKEN"
    return NoAnswer(text, {422: Exit.USAGE, 503: Exit.UNAVAILABLE}.get(status, Exit.FAILED))
