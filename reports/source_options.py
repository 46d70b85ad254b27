"""The options of `format("dovetail")`, as people write them: read once, checked, then plain data.

Promises  an option that is not right is refused before anything is asked of a broker, with what is accepted; one that
          does not exist is refused with the one that was probably meant.
Never     connects.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from dovetail.reports.errors import ReportError
from dovetail.runtime.client import blocking
from dovetail.runtime.client.address import parse
from dovetail.runtime.client.durations import seconds
from dovetail.runtime.client.producer import LANES

Place: TypeAlias = int | Literal["earliest", "latest"]
Log: TypeAlias = tuple[str, int, int]
"""A topic's partition, and the lane in it; 0 where the topic has none."""
LANE_NAMES: Final = {number: name for name, number in LANES.items()}
URL: Final = "dovetail://127.0.0.1:7400"
_SPARKS: Final = frozenset({"checkpointlocation", "queryname", "path", "triggerinterval", "outputmode"})
"""What Spark hands to every source and sink."""


class SourceError(ReportError):
    """Something about reading or writing a broker's topics with Spark that its user can put right."""


@dataclass(frozen=True)
class Offsets:
    """Where to begin or to end: for each log that is named its own place, for all others `default`."""

    default: Place
    named: Mapping[Log, Place] = field(default_factory=dict)

    def of(self, log: Log) -> Place:
        """The place in one log; what is said of a partition holds for each of its lanes."""
        topic, partition, _ = log
        return self.named.get(log, self.named.get((topic, partition, 0), self.default))


@dataclass(frozen=True)
class Options:
    """Everything that can be chosen. README and `docs/spark.md` have the table."""

    url: str = URL
    token: str = ""
    ca: str = ""
    topics: tuple[str, ...] = ()
    pattern: str = ""
    start: Offsets = Offsets("earliest")
    end: Offsets = Offsets("latest")
    since_ms: int | None = None
    until_ms: int | None = None
    per_task: int = 500_000
    per_trigger: int = 0
    fetch_bytes: int = 1 << 20
    fail_on_data_loss: bool = True
    timeout_s: float = 60.0
    write_id: str = ""
    batch_rows: int = 5_000
    batch_bytes: int = 512 << 10

    def connect(self, timeout_s: float | None = None) -> blocking.Client:
        """A client that is not open yet; what it does may wait for `timeout`, a restart of the broker included."""
        wait = self.timeout_s if timeout_s is None else min(timeout_s, self.timeout_s)
        try:
            return blocking.connect(
                self.url, token=self.token, ca=self.ca, timeout=self.timeout_s, connect_timeout=wait
            )
        except ValueError as error:
            raise SourceError(f"option {error}") from None

    @property
    def topic(self) -> str:
        """The one topic that rows without a topic of their own are written to."""
        return self.topics[0] if len(self.topics) == 1 else ""


def read_options(given: Mapping[str, str]) -> Options:
    """The options that were given, in any case; raises `SourceError`."""
    found: dict[str, object] = {}
    known = {name.lower(): name for name in _READERS}
    for key, text in given.items():
        if key.lower() in _SPARKS:
            if key.lower() == "path" and text:
                raise SourceError(f'load({text!r}): a broker has no paths, use .option("topic", {text!r})')
            continue
        name = known.get(key.lower())
        if name is None:
            close = difflib.get_close_matches(key.lower(), known, 1)
            meant = f", did you mean {known[close[0]]}?" if close else ""
            raise SourceError(f"there is no option {key!r}{meant} Options are {', '.join(_READERS)}")
        target, read = _READERS[name]
        try:
            found[target] = read(text)
        except ValueError as error:
            raise SourceError(f"option {name}={text!r}: {error}") from None
    options = Options(**found)  # type: ignore[arg-type]  # each reader gives what its field takes
    if options.topics and options.pattern:
        raise SourceError("options topic and pattern are both set: name topics, or a pattern that they match")
    if options.ca and not parse(options.url).tls:
        raise SourceError(f"option ca is for brokers that speak TLS, write url=dovetails://…, not {options.url}")
    if options.since_ms is not None and options.until_ms is not None and options.since_ms >= options.until_ms:
        raise SourceError("startingTime is not before endingTime: nothing would be read")
    return options


def _url(text: str) -> str:
    return str(parse(text))


def _topics(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if not all(names):
        raise ValueError("name a topic, or several with commas between")
    wild = [name for name in names if "*" in name or "#" in name]
    if wild:
        raise ValueError(f"{wild[0]} is a pattern: use the option pattern")
    return tuple(name.replace("/", ".") for name in names)


def _pattern(text: str) -> str:
    if not text.strip():
        raise ValueError("a pattern is a topic in which * stands for one level and # at the end for any number")
    return text.strip()


def _offsets(text: str) -> Offsets:
    if text.strip().startswith("{"):
        return _offsets_by_log(text)
    return Offsets(_place(text))


def _place(value: object) -> Place:
    if isinstance(value, str):
        word = value.strip().lower()
        if word == "earliest":
            return "earliest"
        if word == "latest":
            return "latest"
        if word.isdecimal():
            return int(word)
    elif isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError(f'{value!r} is no place in a log: write earliest, latest, an offset, or {{"topic": {{"0": 17}}}}')


def _log_name(topic: str, text: str) -> Log:
    partition, slash, lane = text.partition("/")
    if not partition.isdecimal():
        raise ValueError(f"{text!r} is no partition: they are numbers from 0")
    if slash and lane not in LANES:
        raise ValueError(f"{lane!r} is no lane: they are {', '.join(LANES)}")
    return topic.replace("/", "."), int(partition), LANES.get(lane, 0)


def _offsets_by_log(text: str) -> Offsets:
    try:
        read = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"this is no JSON ({error})") from None
    named: dict[Log, Place] = {}
    for topic, partitions in read.items():
        if not isinstance(partitions, dict):
            raise ValueError(f'after {topic!r} there must be its partitions: {{"{topic}": {{"0": 17}}}}')
        for partition, place in partitions.items():
            named[_log_name(topic, partition)] = _place(place)
    return Offsets("earliest", named)


def _time(text: str) -> int:
    if text.isdecimal():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("write a time as 2026-01-31T12:00:00+01:00 or as milliseconds since 1970") from None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("write a whole number from 1")
    return int(text)


def _yes_no(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("write true or false")
    return text.lower() == "true"


def _end(text: str) -> Offsets:
    found = _offsets(text)
    return Offsets("latest", found.named) if found.named else found


_READERS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "url": ("url", _url),
    "token": ("token", str),
    "ca": ("ca", str),
    "topic": ("topics", _topics),
    "pattern": ("pattern", _pattern),
    "startingOffset": ("start", _offsets),
    "endingOffset": ("end", _end),
    "startingTime": ("since_ms", _time),
    "endingTime": ("until_ms", _time),
    "maxOffsetsPerTask": ("per_task", _count),
    "maxOffsetsPerTrigger": ("per_trigger", _count),
    "fetchBytes": ("fetch_bytes", _count),
    "failOnDataLoss": ("fail_on_data_loss", _yes_no),
    "timeout": ("timeout_s", seconds),
    "writeId": ("write_id", str),
    "batchRows": ("batch_rows", _count),
    "batchBytes": ("batch_bytes", _count),
}
"""Each option with the field of `Options` it fills, and how it is read."""
