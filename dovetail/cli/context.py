"""`dovetail context`: several brokers by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
import typer
from msgspec import Struct

from dovetail.cli.output import Form, Json, Output, fail, print_json, print_rows
from dovetail.runtime.exits import Exit

PORT, HTTP_PORT = 7400, 7480
"""Where a broker listens if nobody says otherwise."""
app = typer.Typer(no_args_is_help=True, help="Several brokers by name.")
Name = Annotated[str, typer.Argument(help="What the broker is called here.")]


class Context(Struct, frozen=True):
    """How one broker is reached."""

    url: str = ""
    api: str = ""
    token: str = ""


class Contexts(Struct, frozen=True):
    """All that are known, and the one that is meant when none is named."""

    current: str = ""
    known: dict[str, Context] = {}


def _path() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "dovetail" / "contexts.json"


def _read() -> Contexts:
    try:
        return msgspec.json.decode(_path().read_bytes(), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except (OSError, msgspec.DecodeError) as error:
        fail(f"can't read {_path()}: {error}; repair or remove it", Exit.USAGE)


def _write(contexts: Contexts) -> None:
    """Only its owner may read it: there may be tokens in it."""
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(contexts)))


def enter(name: str) -> None:
    """Have the commands mean the broker called `name`, or the current one; what is in the environment wins."""
    contexts = _read()
    wanted = name or contexts.current
    if not wanted:
        return
    found = contexts.known.get(wanted)
    if found is None:
        there = ", ".join(sorted(contexts.known)) or "none: `dovetail context add` makes one"
        fail(f"there is no context {wanted!r}; there are {there}", Exit.USAGE)
    for variable, value in (("DOVETAIL_URL", found.url), ("DOVETAIL_API", found.api), ("DOVETAIL_TOKEN", found.token)):
        if value:
            os.environ.setdefault(variable, value)


@app.callback()
def context() -> None:
    """Several brokers by name."""


@app.command("add")
def add(
    name: Name,
    url: Annotated[str, typer.Option("--url", help="dovetail://HOST:PORT")] = "",
    api: Annotated[str, typer.Option("--api", help="http://HOST:PORT")] = "",
    token: Annotated[str, typer.Option("--token", help="A token, where the broker wants one.")] = "",
    json: Json = False,
) -> None:
    """Remember a broker; the first one is the current one."""
    if not url and not api:
        fail("say how it is reached: --url dovetail://HOST:PORT, --api http://HOST:PORT, or both", Exit.USAGE)
    # Without one of the two, commands of the other kind would go to a broker on this machine.
    url, api = url or f"dovetail://{_host(api)}:{PORT}", api or f"http://{_host(url)}:{HTTP_PORT}"
    before = _read()
    _write(Contexts(before.current or name, {**before.known, name: Context(url, api, token)}))
    _say(f"{name} is known: {url}, {api}", {"added": name, "url": url, "api": api}, json)


def _host(address: str) -> str:
    try:
        found = urlsplit(address if "://" in address else f"//{address}").hostname
    except ValueError:
        found = None
    if not found:
        fail(f"{address!r} is not an address such as http://HOST:PORT", Exit.USAGE)
    return f"[{found}]" if ":" in found else found


@app.command("use")
def use(name: Name, json: Json = False) -> None:
    """Have the commands mean this broker from now on."""
    before = _read()
    if name not in before.known:
        fail(f"there is no context {name!r}: `dovetail context list` shows those there are")
    _write(Contexts(name, before.known))
    _say(f"{name} is meant from now on", {"current": name}, json)


@app.command("list")
def list_contexts(output: Output = Form.TABLE, json: Json = False) -> None:
    """The brokers that are known; never their tokens."""
    found = _read()
    rows = [
        {"name": name, "current": name == found.current, "url": each.url, "api": each.api, "token": bool(each.token)}
        for name, each in sorted(found.known.items())
    ]
    print_rows(rows, ("name", "current", "url", "api", "token"), output, json, "none: `dovetail context add` makes one")


@app.command("remove")
def remove(name: Name, json: Json = False) -> None:
    """Forget a broker."""
    before = _read()
    if name not in before.known:
        fail(f"there is no context {name!r}: `dovetail context list` shows those there are")
    rest = {each: known for each, known in before.known.items() if each != name}
    _write(Contexts("" if before.current == name else before.current, rest))
    _say(f"{name} is forgotten", {"removed": name}, json)


def _say(text: str, data: dict[str, str], json: bool) -> None:
    if json:
        print_json(data)
    else:
        typer.echo(text)
