"""How a broker is set up: defaults, then a YAML file, then the environment, then flags, each value with its origin.

Promises  nothing here needs a file; a key or value that is not right is refused with its place, what is accepted and,
          where one is close, what was probably meant. `SETTINGS` is the whole list: the reference page is made of it.
Never     opens anything but the file it is given.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from enum import Enum

import msgspec
import yaml
from msgspec import Struct

from dovetail.core import names
from dovetail.core.frames import ROOM_BYTES, batch_bytes_max
from dovetail.core.levels import PressureLimits
from dovetail.core.names import BadName
from dovetail.core.node import NodeOptions
from dovetail.core.records import SyncPolicy
from dovetail.core.state import Settings, TopicRule
from dovetail.core.topics import config_for
from dovetail.runtime.client.durations import milliseconds
from dovetail.runtime.logs import LEVELS
from dovetail.runtime.storage.layout import StoreOptions
from dovetail.runtime.storage.space import SpaceLimits

TCP_PORT = 7400
HTTP_PORT = 7480
ENVIRONMENT = "DOVETAIL_"
NOT_SETTINGS = frozenset({"DOVETAIL_URL", "DOVETAIL_API", "DOVETAIL_TOKEN", "DOVETAIL_CONFIG", "DOVETAIL_CONTEXT"})
"""What clients and commands read from the environment, beside the settings of a broker."""
DEFAULT = "default"


class Config(Struct, frozen=True):
    """All settings of one broker process. An empty `http` means no HTTP."""

    data: str = "data"
    listen: str = f"127.0.0.1:{TCP_PORT}"
    http: str = f"127.0.0.1:{HTTP_PORT}"
    settings: Settings = Settings()
    store: StoreOptions = StoreOptions()
    node: NodeOptions = NodeOptions()
    space: SpaceLimits = SpaceLimits()
    pressure: PressureLimits = PressureLimits()
    heartbeat_ms: int = 3_000
    frame_bytes_max: int = 10 << 20
    connections_max: int = 10_000
    http_connections_max: int = 1_000
    checkpoint_ms: int = 300_000
    drain_ms: int = 5_000
    go_on_without_damage: bool = False
    tokens: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    log_format: str = "auto"
    log_level: str = "info"
    trace_wire: bool = False
    record: str = ""
    """Where a recording of the core's inputs is kept; empty: none is."""
    trace: str = ""
    """Where a trace for `dovetail report` is kept; empty: none is."""


class BadAddress(ValueError):
    """An address that is not HOST:PORT; the text says what is."""


class BadConfig(ValueError):
    """A setting that is not right; the text says where it stands and what would be."""


def address(text: str) -> tuple[str, int]:
    """`HOST:PORT` as a pair; IPv6 hosts stand in brackets, port 0 lets the system choose."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise BadAddress(f"{text!r} is not an address: write HOST:PORT, for example 127.0.0.1:{TCP_PORT}")
    return host, int(port)


class Kind(Enum):
    """How a value is written."""

    TEXT = "text"
    ADDRESS = "HOST:PORT"
    WHOLE = "a whole number"
    DURATION = "a duration: 500ms, 30s, 5m, 1h30m, 7d"
    SIZE = "a size: 4096, 64KiB, 10MiB, 1GiB"
    YES_NO = "true or false"
    CHOICE = "one of"


class Setting(Struct, frozen=True):
    """One setting: its key in the file, its field of `Config`, how it is written, and why one would change it."""

    key: str
    field: str
    kind: Kind
    says: str
    least: int = 0
    most: int = 1 << 40
    choices: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return ENVIRONMENT + self.key.upper().replace(".", "_")

    @property
    def accepts(self) -> str:
        """What may be written, in words."""
        match self.kind:
            case Kind.CHOICE:
                return "one of " + ", ".join(self.choices)
            case Kind.WHOLE:
                return f"a whole number from {self.least} to {self.most}"
            case _:
                return str(self.kind.value)


_SYNCS = ("always", "interval", "os")
_FORMATS = ("auto", "text", "json")
_TOPIC = "settings.topic_defaults."

SETTINGS = (
    Setting("data", "data", Kind.TEXT, "Where messages are kept."),
    Setting("listen", "listen", Kind.ADDRESS, "Where clients connect. Beyond loopback, tokens are required."),
    Setting("http", "http", Kind.ADDRESS, "Where HTTP and the console are served; empty for none."),
    Setting("log_format", "log_format", Kind.CHOICE, "auto is text on a terminal, else JSON.", choices=_FORMATS),
    Setting(
        "log_level",
        "log_level",
        Kind.CHOICE,
        "What is logged from; debug follows each message from its arrival to its settle.",
        choices=LEVELS,
    ),
    Setting("trace_wire", "trace_wire", Kind.YES_NO, "Log every frame on the wire, without payloads."),
    Setting("record", "record", Kind.TEXT, "Where a recording for `dovetail sim replay` is kept; empty for none."),
    Setting("trace", "trace", Kind.TEXT, "Where a trace for `dovetail report` is kept; empty for none."),
    Setting("tokens", "tokens", Kind.TEXT, "The file of tokens (`dovetail token add` writes it); empty for none."),
    Setting("tls.cert", "tls_cert", Kind.TEXT, "Certificate chain, PEM; with it both ports speak TLS."),
    Setting("tls.key", "tls_key", Kind.TEXT, "The certificate's private key, PEM."),
    Setting("connections_max", "connections_max", Kind.WHOLE, "Connections at once: each costs memory.", 1, 1_000_000),
    Setting(
        "http_connections_max",
        "http_connections_max",
        Kind.WHOLE,
        "HTTP connections at once: each takes a file descriptor.",
        1,
        100_000,
    ),
    Setting("heartbeat", "heartbeat_ms", Kind.DURATION, "How often clients are told to give a sign of life.", 100),
    Setting("frame_max", "frame_bytes_max", Kind.SIZE, "The largest frame: bounds memory per connection.", 1 << 16),
    Setting("checkpoint", "checkpoint_ms", Kind.DURATION, "A checkpoint this often: shortens recovery.", 1_000),
    Setting("drain", "drain_ms", Kind.DURATION, "How long a stop waits for clients to finish."),
    Setting(
        "go_on_without_damage",
        "go_on_without_damage",
        Kind.YES_NO,
        "Start although stored data is damaged; what is damaged is set aside.",
    ),
    Setting("auto_create", "settings.auto_create", Kind.YES_NO, "Whether topics are made on first use."),
    Setting("partitions", "settings.partitions", Kind.WHOLE, "Partitions of a topic made on first use.", 1, 1_000),
    Setting("max_inflight", "settings.max_inflight", Kind.WHOLE, "Credit of those who ask for none.", 1, 65_535),
    Setting("session_timeout", "settings.session_timeout_ms", Kind.DURATION, "A member silent this long is out.", 100),
    Setting(
        "settle_linger",
        "settings.settle_linger_ms",
        Kind.DURATION,
        "How long an acknowledgment may wait for company before it is synced.",
    ),
    Setting("quiet", "settings.quiet_ms", Kind.DURATION, "A burst of joins is over when nothing came for this long."),
    Setting(
        "rebalance_answer",
        "settings.rebalance_answer_ms",
        Kind.DURATION,
        "How long a member may take to give up a partition.",
        100,
    ),
    Setting("group_expiry", "settings.group_expiry_ms", Kind.DURATION, "A group without members is forgotten.", 1_000),
    Setting("message_max", "settings.message_bytes_max", Kind.SIZE, "The largest message.", 1),
    Setting("deliver_max", "settings.deliver_bytes_max", Kind.SIZE, "About the size of one delivery.", 1_024),
    Setting("topics_max", "settings.topics_max", Kind.WHOLE, "Topics in all.", 1, 1_000_000),
    Setting("partitions_max", "settings.partitions_max", Kind.WHOLE, "Partitions of one topic.", 1, 65_535),
    Setting("patterns_max", "settings.patterns_max", Kind.WHOLE, "Patterns of one client or group.", 1, 100_000),
    Setting("topic_idle", "settings.topic_idle_ms", Kind.DURATION, "Empty topics made on first use go after this."),
    Setting(
        "ephemeral_lag_max",
        "settings.ephemeral_lag_max",
        Kind.WHOLE,
        "A subscription without a group that is further behind jumps ahead and says so.",
        1,
    ),
    Setting("quota.messages", "settings.quota_messages", Kind.WHOLE, "Messages a second of one client; 0: any."),
    Setting("quota.bytes", "settings.quota_bytes", Kind.SIZE, "Bytes a second of one client; 0: any."),
    Setting(
        "dead_letter_retention",
        "settings.dead_letter_retention_ms",
        Kind.DURATION,
        "How long dead letters are kept: somebody has to have the time to look.",
    ),
    Setting("topic.lease", f"{_TOPIC}lease_ms", Kind.DURATION, "A consumer's time for a delivery.", 1),
    Setting("topic.lease_max", f"{_TOPIC}lease_max_ms", Kind.DURATION, "The most that can be extended to.", 1),
    Setting("topic.max_retries", f"{_TOPIC}max_retries", Kind.WHOLE, "Tries after the first.", 0, 1_000),
    Setting("topic.retention", f"{_TOPIC}retention_ms", Kind.DURATION, "How long messages are kept; 0s: no limit."),
    Setting("topic.retention_bytes", f"{_TOPIC}retention_bytes", Kind.SIZE, "How much is kept; 0: no limit."),
    Setting("topic.retention_count", f"{_TOPIC}retention_count", Kind.WHOLE, "How many are kept; 0: no limit."),
    Setting("topic.retain_on_ack", f"{_TOPIC}retain_on_ack", Kind.YES_NO, "Keep what every group has settled."),
    Setting(
        "topic.bytes_max_hard",
        f"{_TOPIC}bytes_max_hard",
        Kind.SIZE,
        "Beyond this, what groups have not read goes too; 0: never.",
    ),
    Setting("topic.compact", f"{_TOPIC}compact", Kind.YES_NO, "Keep only the newest message of each key."),
    Setting(
        "topic.sync",
        f"{_TOPIC}sync",
        Kind.CHOICE,
        "What a confirm waits for: the disk (always), or a write that is synced soon.",
        choices=_SYNCS,
    ),
    Setting("topic.ttl", f"{_TOPIC}ttl_ms", Kind.DURATION, "Messages older than this are dropped; 0s: never."),
    Setting("topic.dead_letters", f"{_TOPIC}dead_letters", Kind.YES_NO, "Whether failures go to the dead letters."),
    Setting(
        "topic.expired_to_dead_letters",
        f"{_TOPIC}expired_to_dead_letters",
        Kind.YES_NO,
        "Whether what expired goes there too.",
    ),
    Setting("topic.lag_warning", f"{_TOPIC}lag_warning", Kind.WHOLE, "Messages behind that are worth a warning."),
    Setting("topic.lag_critical", f"{_TOPIC}lag_critical", Kind.WHOLE, "Publishers are slowed from here on; 0: never."),
    Setting(
        "topic.lag_critical_time",
        f"{_TOPIC}lag_critical_ms",
        Kind.DURATION,
        "The same by age of the oldest message that is not settled; 0s: never.",
    ),
    Setting(
        "topic.poison_members",
        f"{_TOPIC}poison_members",
        Kind.WHOLE,
        "So many members that call a message poison end its tries; 0: never.",
    ),
    Setting(
        "topic.poison_timeouts",
        f"{_TOPIC}poison_timeouts",
        Kind.WHOLE,
        "So many members at which it timed out end its tries; 0: never.",
    ),
    Setting(
        "topic.poison_failures",
        f"{_TOPIC}poison_failures",
        Kind.WHOLE,
        "So many failures within topic.poison_window end its tries; 0: never.",
    ),
    Setting("topic.poison_window", f"{_TOPIC}poison_window_ms", Kind.DURATION, "See topic.poison_failures."),
    Setting("storage.journal_segment", "store.journal_segment_bytes", Kind.SIZE, "One journal file.", 1 << 16),
    Setting("storage.log_segment", "store.log_segment_bytes", Kind.SIZE, "One file of a log.", 1 << 12),
    Setting("storage.log_segment_age", "store.log_segment_ms", Kind.DURATION, "A file no older than this.", 1_000),
    Setting("storage.index_every", "store.index_every_bytes", Kind.SIZE, "One index entry for so much log.", 64),
    Setting("storage.preallocate", "store.preallocate", Kind.YES_NO, "Prewrite journal files: syncs are faster."),
    Setting(
        "storage.checkpoint_journal",
        "store.checkpoint_journal_bytes",
        Kind.SIZE,
        "A checkpoint after so much journal.",
        1 << 16,
    ),
    Setting("storage.spare_segments_max", "store.spare_segments_max", Kind.WHOLE, "Journal files kept ready.", 0, 100),
    Setting("disk.warn_percent", "space.warn_percent", Kind.WHOLE, "Disk in use that is worth a warning.", 1, 100),
    Setting("disk.compact_percent", "space.compact_percent", Kind.WHOLE, "Retention and compaction hurry.", 1, 100),
    Setting("disk.read_only_percent", "space.read_only_percent", Kind.WHOLE, "No publishes from here on.", 1, 100),
    Setting("disk.slack_percent", "space.slack_percent", Kind.WHOLE, "How much use must fall again.", 0, 50),
    Setting("disk.kept_back", "space.kept_back_bytes", Kind.SIZE, "Free space kept for settles and checkpoints."),
    Setting(
        "memory.max",
        "pressure.memory_bytes",
        Kind.SIZE,
        "What the process may have; 0: what its container or the machine has.",
    ),
    Setting("memory.throttle_percent", "pressure.throttle_percent", Kind.WHOLE, "Publishing is slowed.", 1, 100),
    Setting("memory.emergency_percent", "pressure.emergency_percent", Kind.WHOLE, "Level emergency begins.", 1, 100),
    Setting("memory.slack_percent", "pressure.slack_percent", Kind.WHOLE, "How much use must fall again.", 0, 50),
    Setting("loop_late", "pressure.late_ms", Kind.DURATION, "A loop this late slows publishing until it keeps up.", 10),
    Setting("memory.tail", "node.tail_bytes_max", Kind.SIZE, "Newest messages kept in memory.", 1 << 16),
    Setting("memory.read", "node.read_bytes_max", Kind.SIZE, "Older messages kept after a read.", 1 << 16),
    Setting("memory.send_window", "node.send_window_bytes", Kind.SIZE, "Unsent bytes of one connection.", 1 << 12),
    Setting(
        "memory.send_buffer_max",
        "node.send_buffer_bytes_max",
        Kind.SIZE,
        "A connection with more unread than this is closed.",
        1 << 16,
    ),
    Setting(
        "memory.unwritten_max",
        "node.unwritten_bytes_max",
        Kind.SIZE,
        "Sockets are not read while more than this waits for the disk.",
        1 << 16,
    ),
    Setting("stall", "node.stall_ms", Kind.DURATION, "A frame that was begun is finished within this.", 100),
)
BY_KEY = {setting.key: setting for setting in SETTINGS}
TOPICS = "topics"
"""The family of what topics of a pattern get: `topics.PATTERN.NAME`, where `topic.NAME` is a setting."""
_TERMS = {"session_timeout", "message_max"}
"""What clients were told when they connected stays as it was."""
_AT_ONCE = {"log_level", "trace_wire"}
CHANGEABLE = tuple(
    each.key
    for each in SETTINGS
    if (each.field.startswith("settings.") and each.key not in _TERMS) or each.key in _AT_ONCE
)
"""What can be changed while the broker runs; defaults of topics count for topics made from then on."""
_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_UNITS |= {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", re.ASCII)
_YES_NO = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class Row(Struct, frozen=True):
    """One setting as it stands."""

    key: str
    text: str
    origin: str
    says: str


Origins = Mapping[str, str]


def load(
    file_text: str = "",
    file_name: str = "",
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> tuple[Config, Origins]:
    """The configuration that file, environment and flags give together; raises `BadConfig`."""
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    said = (
        *_from_file(file_text, file_name),
        *_from_environment(environment or {}),
        *((key, text, f"--{key.replace('_', '-').replace('.', '-')}") for key, text in (flags or {}).items()),
    )
    for written, text, where in said:
        key = _canonical(written, where)
        values[key] = parse(setting_of(key), text, where)
        origins[key] = where
    config = Config()
    rules: dict[str, list[tuple[str, bool | int]]] = {}
    for key, value in values.items():
        if key in BY_KEY:
            config = _with(config, BY_KEY[key].field.split("."), value)
        else:
            assert isinstance(value, int)
            rules.setdefault(_pattern(key), []).append((setting_of(key).field.removeprefix(_TOPIC), value))
    found = tuple([TopicRule(pattern, tuple(changes)) for pattern, changes in rules.items()])
    config = _with(config, ["settings", "topic_rules"], found)
    _check_together(config, origins)
    return config, origins


def setting_of(key: str) -> Setting:
    """The setting that a key names, for all topics or for those of a pattern; raises `KeyError`."""
    if key in BY_KEY:
        return BY_KEY[key]
    if not key.startswith(f"{TOPICS}.") or not _pattern(key):
        raise KeyError(key)
    return BY_KEY[f"topic.{key.rpartition('.')[2]}"]


def _pattern(key: str) -> str:
    """The pattern in the key of what topics of a pattern get."""
    return key.partition(".")[2].rpartition(".")[0]


def _canonical(key: str, where: str) -> str:
    """A key whose pattern, if it has one, is written in the one way."""
    if key in BY_KEY:
        return key
    try:
        return f"{TOPICS}.{names.pattern(_pattern(key))}.{key.rpartition('.')[2]}"
    except BadName as error:
        raise BadConfig(f"{where}: {error}") from None


def _from_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    by_variable = {setting.variable: setting for setting in SETTINGS}
    for name, text in sorted(environment.items()):
        if not name.startswith(ENVIRONMENT) or name in NOT_SETTINGS:
            continue
        if name in by_variable:
            yield by_variable[name].key, text, name
        elif close := difflib.get_close_matches(name, by_variable, 1, 0.85):
            # Other programs may use the prefix too; what looks like one of ours is a slip.
            raise BadConfig(f"{name} in the environment is not a setting; did you mean {close[0]}?")


def _from_file(text: str, file_name: str) -> Iterator[tuple[str, str, str]]:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadConfig(f"{file_name} line {line}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise BadConfig(f"{file_name}: not YAML: {error}") from None
    if root is not None:
        yield from _from_node(root, "", file_name, {})


def _from_node(node: yaml.Node, prefix: str, file_name: str, seen: dict[str, int]) -> Iterator[tuple[str, str, str]]:
    where = f"{file_name} line {node.start_mark.line + 1}"
    if not isinstance(node, yaml.MappingNode):
        raise BadConfig(f"{where}: {prefix or 'the file'} holds settings, each as `key: value`")
    for key_node, value in node.value:
        key = f"{prefix}.{key_node.value}" if prefix else str(key_node.value)
        where = f"{file_name} line {key_node.start_mark.line + 1}"
        if key in seen:
            raise BadConfig(f"{where}: {key!r} was set in line {seen[key]} already: keep one of them")
        seen[key] = key_node.start_mark.line + 1
        if prefix == TOPICS or key == TOPICS or any(each.startswith(f"{key}.") for each in BY_KEY):
            yield from _from_node(value, key, file_name, seen)
        elif not is_setting(key):
            raise BadConfig(f"{where}: {key!r} is not a setting{meant(key, BY_KEY)}")
        elif not isinstance(value, yaml.ScalarNode) or value.tag == "tag:yaml.org,2002:null":
            raise BadConfig(f"{where}: {key!r} needs a value, {setting_of(key).accepts}")
        else:
            yield key, value.value, where


def is_setting(key: str) -> bool:
    """Whether a key names a setting, for all topics or for those of a pattern."""
    try:
        setting_of(key)
    except KeyError:
        return False
    return True


def meant(wrong: str, known: Mapping[str, object]) -> str:
    """What was probably meant by a key that does not exist, or what there is."""
    family, _, name = wrong.rpartition(".")
    family = "topic" if family.startswith(f"{TOPICS}.") else family
    here = {key.rpartition(".")[2]: key for key in known if key.rpartition(".")[0] == family}
    close = difflib.get_close_matches(name, here, 1, 0.6) or difflib.get_close_matches(wrong, known, 1, 0.85)
    if close:
        return f"; did you mean {here.get(close[0], close[0])!r}? `dovetail config show` lists all"
    there = [key for key in known if key.rpartition(".")[0] == family] or list(known)
    return f"; there are {', '.join(there)}"


def parse(setting: Setting, text: str, where: str) -> object:
    """A value from its text; raises `BadConfig` with what is accepted."""
    try:
        value = _value(setting, text.strip())
    except ValueError:
        raise BadConfig(f"{where}: {setting.key} is {text!r}; accepted: {setting.accepts}") from None
    if isinstance(value, int) and not isinstance(value, bool | SyncPolicy) and not _fits(setting, value):
        least, most = show(setting, setting.least), show(setting, setting.most)
        raise BadConfig(f"{where}: {setting.key} is {text!r}; accepted: {setting.accepts}, from {least} to {most}")
    return value


def _fits(setting: Setting, value: int) -> bool:
    return setting.least <= value <= setting.most


def _value(setting: Setting, text: str) -> object:
    match setting.kind:
        case Kind.TEXT:
            return text
        case Kind.ADDRESS:
            if text or setting.key != "http":
                address(text)
            return text
        case Kind.WHOLE:
            if not (text.isascii() and text.replace("_", "").isdecimal()):
                raise ValueError(text)
            return int(text)
        case Kind.DURATION:
            return 0 if text == "0" else milliseconds(text)
        case Kind.SIZE:
            found = _SIZE.fullmatch(text)
            if found is None or found[2].upper() not in _UNITS:
                raise ValueError(text)
            return int(float(found[1]) * _UNITS[found[2].upper()])
        case Kind.YES_NO:
            if text.lower() not in _YES_NO:
                raise ValueError(text)
            return _YES_NO[text.lower()]
        case Kind.CHOICE:
            if text not in setting.choices:
                raise ValueError(text)
            return SyncPolicy(_SYNCS.index(text)) if setting.choices is _SYNCS else text


def _check_together(config: Config, origins: Origins) -> None:
    """What can only be judged about several settings at once."""
    if bool(config.tls_cert) != bool(config.tls_key):
        raise BadConfig("tls.cert and tls.key belong together: set both or neither")
    for family, rising in (
        ("disk", [config.space.warn_percent, config.space.compact_percent, config.space.read_only_percent]),
        ("memory", [config.pressure.throttle_percent, config.pressure.emergency_percent]),
    ):
        if rising != sorted(rising):
            names = [key for key in BY_KEY if key.startswith(f"{family}.") and key.endswith("_percent")]
            order = " <= ".join(key for key in names if not key.endswith("slack_percent"))
            raise BadConfig(f"the limits of {family} do not rise: make {order}")
    for pattern in ("", *(rule.pattern for rule in config.settings.topic_rules)):
        topic = config_for(config.settings, pattern) if pattern else config.settings.topic_defaults
        if topic.lease_max_ms < topic.lease_ms:
            keys = f"{TOPICS}.{pattern}" if pattern else "topic"
            raise BadConfig(f"{keys}.lease_max is shorter than {keys}.lease: make it as long at least")
    if config.settings.session_timeout_ms < 2 * config.heartbeat_ms and "session_timeout" in origins:
        raise BadConfig("session_timeout is shorter than two heartbeats: members would come and go; lengthen it")
    for name, size in (
        ("message_max", config.settings.message_bytes_max),
        ("deliver_max", config.settings.deliver_bytes_max),
    ):
        if size + ROOM_BYTES > batch_bytes_max(config.frame_bytes_max):
            raise BadConfig(f"{name} does not fit into frame_max: make frame_max 2KiB larger at least")


def changed_by(config: Config, setting: Setting, text: str, where: str) -> Config:
    """The configuration with one setting changed; raises `BadConfig`."""
    changed = _with(config, setting.field.split("."), parse(setting, text, where))
    _check_together(changed, {})
    return changed


def _with(config: Struct, path: list[str], value: object) -> Config:
    inner = value if len(path) == 1 else _with(getattr(config, path[0]), path[1:], value)
    changed: Config = msgspec.structs.replace(config, **{path[0]: inner})  # type: ignore[assignment]  # one struct in another
    return changed


def value_of(config: Config, setting: Setting) -> object:
    """A setting's value in a configuration."""
    found: object = config
    for name in setting.field.split("."):
        found = getattr(found, name)
    return found


def show(setting: Setting, value: object) -> str:
    """A value as people write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, SyncPolicy):
        return _SYNCS[value]
    if isinstance(value, int) and setting.kind is Kind.DURATION:
        return _in_units(value, (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)), "0s")
    if isinstance(value, int) and setting.kind is Kind.SIZE:
        return _in_units(value, (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("", 1)), "0")
    return str(value)


def _in_units(value: int, units: tuple[tuple[str, int], ...], nothing: str) -> str:
    """The largest unit in which the value is whole."""
    name, size = next(((name, size) for name, size in units if value and value % size == 0), ("", 0))
    return f"{value // size}{name}" if size else nothing


def explain(config: Config, origins: Origins) -> list[Row]:
    """Every setting, its value and where it came from."""
    rows = [
        Row(each.key, show(each, value_of(config, each)), origins.get(each.key, DEFAULT), each.says)
        for each in SETTINGS
    ]
    by_field = {each.field.removeprefix(_TOPIC): each for each in SETTINGS if each.field.startswith(_TOPIC)}
    for rule in config.settings.topic_rules:
        for name, value in rule.changes:
            setting = by_field[name]
            key = f"{TOPICS}.{rule.pattern}.{setting.key.removeprefix('topic.')}"
            rows.append(Row(key, show(setting, value), origins.get(key, DEFAULT), setting.says))
    return rows


def reference_page() -> str:
    """The reference of all settings, as Markdown."""
    config = Config()
    lines = [
        "# Settings",
        "",
        "Defaults first, then the YAML file (`dovetail serve --config FILE`), then the environment, then flags. Keys",
        "with a dot stand under their family in the file (`topic:` / `  lease: 30s`). `dovetail config show` prints",
        "each value and where it came from. This page is generated from the table in `runtime/config.py`.",
        "",
        "What the `topic` family says holds for every topic that is made from then on. Under `topics`, the same keys",
        "hold for topics whose names match a pattern; of several that match, all count, a later one over an earlier:",
        "",
        "```yaml",
        "topic:",
        "  retention: 7d",
        "topics:",
        '  "logs.#":',
        "    retention: 1d",
        "    retention_bytes: 10GiB",
        '  "logs.audit.*":',
        "    retention: 365d",
        "```",
        "",
        "On the command line that is `--set 'topics.logs.#.retention=1d'`. Topics that are there already keep what",
        "they have: `dovetail topic set 'logs.#' retention.hours=24` changes all that match.",
        "",
        "| key | environment | default | accepted | what for |",
        "|---|---|---|---|---|",
    ]
    for each in SETTINGS:
        default = show(each, value_of(config, each)) or "(empty)"
        lines.append(f"| `{each.key}` | `{each.variable}` | `{default}` | {each.accepts} | {each.says} |")
    return "\n".join(lines) + "\n"
