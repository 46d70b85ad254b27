"""Settings: where they come from, what is refused and how, and the page that lists them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dovetail.core.records import SyncPolicy
from dovetail.core.state import Settings
from dovetail.core.topics import config_for
from dovetail.runtime.config import (
    BY_KEY,
    SETTINGS,
    BadConfig,
    Config,
    Kind,
    explain,
    load,
    parse,
    reference_page,
    show,
    value_of,
)

NOT_BY_FILE = {
    "node.joined_bytes_max",
    "node.behind_bytes_max",
    "node.behind_linger_ms",
    "store.sync_each_max",
    "store.indexes_loaded_max",
}
"""Fields nobody has a reason to change: tuned with the code around them."""


def test_later_sources_win_and_are_named() -> None:
    file = "listen: 127.0.0.1:1\npartitions: 2\ntopic:\n  lease: 10s\n  sync: os\n"
    environment = {"DOVETAIL_PARTITIONS": "3", "DOVETAIL_TOPIC_LEASE": "20s", "DOVETAIL_URL": "x", "HOME": "/"}
    config, origins = load(file, "d.yaml", environment, {"topic.lease": "40s"})
    assert config.listen == "127.0.0.1:1"
    assert config.settings.partitions == 3
    assert config.settings.topic_defaults.lease_ms == 40_000
    assert config.settings.topic_defaults.sync is SyncPolicy.OS
    rows = {row.key: (row.text, row.origin) for row in explain(config, origins)}
    assert rows["listen"] == ("127.0.0.1:1", "d.yaml line 1")
    assert rows["partitions"] == ("3", "DOVETAIL_PARTITIONS")
    assert rows["topic.lease"] == ("40s", "--topic-lease")
    assert rows["topic.max_retries"] == ("3", "default")


def test_nothing_said_is_the_default() -> None:
    assert load() == (Config(), {})
    assert load("# only a comment\n", "d.yaml", {}, {}) == (Config(), {})


def test_every_setting_reads_what_it_shows() -> None:
    for setting in SETTINGS:
        value = value_of(Config(), setting)
        assert parse(setting, show(setting, value), "here") == value


def test_every_field_of_the_configuration_is_a_setting_once() -> None:
    fields = [setting.field for setting in SETTINGS]
    assert len(set(fields)) == len(fields)
    assert set(fields) == set(_leaves(Config(), "")) - NOT_BY_FILE - {"settings.topic_rules"}


def _leaves(struct: msgspec.Struct, prefix: str) -> list[str]:
    found = []
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        if isinstance(value, msgspec.Struct):
            found += _leaves(value, f"{prefix}{field.name}.")
        else:
            found.append(prefix + field.name)
    return found


BY_PATTERN = """
topic:
  retention: 7d
topics:
  "logs.#":
    retention: 1d
    retention_bytes: 1GiB
    sync: os
  logs/audit/*:
    retention: 365d
    compact: yes
"""


def test_topics_of_a_pattern_get_settings_of_their_own_and_a_later_pattern_wins() -> None:
    config, origins = load(BY_PATTERN, "d.yaml", {}, {"topics.logs.#.retention_count": "5"})
    audit, other = config_for(config.settings, "logs.audit.web"), config_for(config.settings, "logs.web")
    assert (audit.retention_ms, audit.retention_bytes, audit.retention_count) == (365 * 86_400_000, 1 << 30, 5)
    assert (audit.sync, audit.compact) == (SyncPolicy.OS, True)
    assert (other.retention_ms, other.compact) == (86_400_000, False)
    assert config_for(config.settings, "orders") == config.settings.topic_defaults
    rows = {row.key: (row.text, row.origin) for row in explain(config, origins)}
    assert rows["topics.logs.#.retention"] == ("1d", "d.yaml line 6")
    assert rows["topics.logs.#.sync"] == ("os", "d.yaml line 8")
    assert rows["topics.logs.audit.*.retention"] == ("365d", "d.yaml line 10")
    assert rows["topics.logs.#.retention_count"][0] == "5"
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(config.settings), type=Settings)
    assert config_for(again, "logs.audit.web") == audit
    assert isinstance(config_for(again, "logs.audit.web").sync, SyncPolicy)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("topics:\n  'logs.#.x':\n    retention: 1d\n", "d.yaml line 3: pattern 'logs.#.x' has '#' before its end"),
        ("topics:\n  'a b':\n    retention: 1d\n", "level 'a b' of pattern 'a b' may hold only"),
        ("topics:\n  logs.*:\n    retentoin: 1d\n", "line 3: .* did you mean .*retention"),
        ("topics:\n  logs.*:\n    retention: soon\n", "line 3: topic.retention is 'soon'; accepted: a duration"),
        ("topics:\n  logs.*: 1d\n", "line 2: topics.logs.* holds settings, each as `key: value`"),
        ("topics: 1d\n", "line 1: topics holds settings"),
        ("topics:\n  logs.*:\n    lease_max: 1s\n", "topics.logs.*.lease_max is shorter than topics.logs.*.lease"),
    ],
)
def test_a_wrong_pattern_or_setting_of_one_is_refused_with_what_to_do(file: str, says: str) -> None:
    with pytest.raises(BadConfig, match=says.replace("*", ".*")):
        load(file, "d.yaml")


def test_the_reference_page_is_the_one_that_the_code_makes() -> None:
    page = Path(__file__).parents[2] / "docs" / "settings.md"
    assert page.read_text() == reference_page(), "make it anew: dovetail config reference > docs/settings.md"


def _wrong_values() -> list[tuple[str, str]]:
    """For each setting, values that are not of its kind or out of its bounds."""
    by_kind = {
        Kind.ADDRESS: ["localhost", ":7400", "'127.0.0.1:'", "127.0.0.1:x", "127.0.0.1:99999", "127.0.0.1:-1"],
        Kind.WHOLE: ["many", "-1", "1.5", "9999999999999999", "1 2", '""'],
        Kind.DURATION: ["soon", "5", "5 parsecs", "-5s", "s", '""'],
        Kind.SIZE: ["big", "-1", "5 XB", "1e3", "KiB", '""'],
        Kind.YES_NO: ["maybe", "2", '""'],
        Kind.CHOICE: ["sometimes", "1", '""'],
        Kind.TEXT: [],
    }
    return [(setting.key, value) for setting in SETTINGS for value in by_kind[setting.kind]]


def test_there_are_many_wrong_values() -> None:
    assert len(_wrong_values()) > 200


@pytest.mark.parametrize(("key", "value"), _wrong_values())
def test_a_wrong_value_is_refused_with_its_line_and_what_is_accepted(key: str, value: str) -> None:
    family, dot, name = key.partition(".")
    file = f"# a comment\n{family}:\n  {name}: {value}\n" if dot else f"# a comment\n\n{key}: {value}\n"
    with pytest.raises(BadConfig) as refused:
        load(file, "d.yaml")
    text = str(refused.value)
    assert text.startswith("d.yaml line 3: ")
    assert key in text
    assert BY_KEY[key].accepts in text


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("partitons: 2", "line 1: 'partitons' is not a setting; did you mean 'partitions'?"),
        ("topic:\n  leese: 5s", "line 2: 'topic.leese' is not a setting; did you mean 'topic.lease'?"),
        ("topic_max: 5", "line 1: 'topic_max' is not a setting; did you mean 'topics_max'?"),
        ("zzz: 5", "there are data, listen"),
        ("topic:\n  zzz: 5", "there are topic.lease"),
        ("topic: 5", "line 1: topic holds settings"),
        ("topic: [1]", "line 1: topic holds settings"),
        ("- a", "line 1: the file holds settings"),
        ("just text", "line 1: the file holds settings"),
        ("partitions:", "line 1: 'partitions' needs a value"),
        ("partitions: [1, 2]", "line 1: 'partitions' needs a value"),
        ("partitions: {a: 1}", "line 1: 'partitions' needs a value"),
        ("partitions: 1\npartitions: 2", "line 2: 'partitions' was set in line 1 already"),
        ("a: b: c", "line 1: not YAML"),
        ("a: [1", "not YAML"),
        ("\tpartitions: 1", "line 1: not YAML"),
        ("tls:\n  cert: x.pem", "belong together"),
        ("topic:\n  lease: 2h", "topic.lease_max is shorter"),
        ("session_timeout: 1s", "two heartbeats"),
        ("message_max: 10MiB", "does not fit into frame_max"),
        ("disk:\n  warn_percent: 99", "make disk.warn_percent <= disk.compact_percent <= disk.read_only_percent"),
        ("memory:\n  throttle_percent: 99", "make memory.throttle_percent <= memory.emergency_percent"),
    ],
)
def test_a_wrong_file_is_refused_with_what_to_do(file: str, says: str) -> None:
    with pytest.raises(BadConfig) as refused:
        load(file, "d.yaml")
    assert says in str(refused.value)


def test_a_slip_in_the_environment_is_found_and_other_programs_are_left_alone() -> None:
    with pytest.raises(BadConfig, match="did you mean DOVETAIL_PARTITIONS"):
        load("", "", {"DOVETAIL_PARTITION": "3"})
    with pytest.raises(BadConfig, match=r"DOVETAIL_TOPIC_LEASE: topic\.lease is 'x'"):
        load("", "", {"DOVETAIL_TOPIC_LEASE": "x"})
    assert load("", "", {"DOVETAIL_SOMETHING_ELSE": "3"})[0] == Config()


@pytest.mark.parametrize(
    ("text", "size"), [("4096", 4096), ("4KiB", 4096), ("1.5MiB", 3 << 19), ("2 kB", 2000), ("1gib", 1 << 30)]
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse(BY_KEY["quota.bytes"], text, "here") == size
