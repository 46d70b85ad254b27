"""Reading the configuration again while the broker runs: SIGHUP, or an operator's call.

Promises  what can change does, what takes a restart is named, what an operator changed at run time stays; files that
          are not right change nothing.
Never     closes a connection but those of tokens that are not good any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from msgspec import Struct
from msgspec.structs import replace

from dovetail.runtime.config import (
    CHANGEABLE,
    SETTINGS,
    TOPICS,
    BadConfig,
    Config,
    Origins,
    changed_by,
    show,
    value_of,
)
from dovetail.runtime.security import Insecure

if TYPE_CHECKING:
    from dovetail.runtime.server import Server

log = structlog.get_logger("config")

RUN_TIME = "changed at run time"
"""The origin of what an operator set while the broker ran."""


class Reloaded(Struct, frozen=True):
    """What became of it: settings by key, and files."""

    changed: list[str]
    needs_restart: list[str]
    kept: list[str]
    files: list[str]


def reload(server: Server) -> Reloaded:
    """Read everything again; raises `BadConfig` or `Insecure`, and then nothing has changed."""
    config, origins = server.reread() if server.reread is not None else (server.config, server.origins)
    files = server.security.reload()
    changed: list[str] = []
    needs_restart: list[str] = []
    kept: list[str] = []
    now, now_origins = server.config, dict(server.origins)
    for each in SETTINGS:
        if value_of(now, each) == value_of(config, each):
            continue
        if server.origins.get(each.key) == RUN_TIME:
            kept.append(each.key)
        elif each.key in CHANGEABLE:
            changed.append(each.key)
            now = changed_by(now, each, show(each, value_of(config, each)), origins.get(each.key, "default"))
            now_origins[each.key] = origins.get(each.key, "default")
        else:
            needs_restart.append(each.key)
    if now.settings.topic_rules != config.settings.topic_rules:
        changed.append(TOPICS)
        now = replace(now, settings=replace(now.settings, topic_rules=config.settings.topic_rules))
        now_origins = {key: where for key, where in now_origins.items() if not key.startswith(f"{TOPICS}.")}
        now_origins |= {key: where for key, where in origins.items() if key.startswith(f"{TOPICS}.")}
    server.change(now, now_origins)
    return Reloaded(changed, needs_restart, kept, files)


def reload_and_say(server: Server) -> None:
    """The same, with what came of it in the log."""
    try:
        found = reload(server)
    except (BadConfig, Insecure) as error:
        log.error("reload failed, nothing was changed", reason=str(error))
        return
    log.info("reloaded", changed=found.changed, files=found.files, kept=found.kept)
    if found.needs_restart:
        log.warning("some settings take a restart", settings=found.needs_restart)


def with_settings(server: Server, settings: dict[str, str]) -> tuple[Config, Origins]:
    """The configuration with an operator's changes; raises `BadConfig`."""
    changed = server.config
    for each in SETTINGS:
        if each.key in settings:
            changed = changed_by(changed, each, settings[each.key], "body")
    return changed, {**server.origins, **dict.fromkeys(settings, RUN_TIME)}
