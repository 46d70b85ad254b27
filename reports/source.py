"""A broker's topics as a Spark source and sink: `spark.read.format("dovetail")`, `readStream`, and both ways to write.

Promises  exactly the offsets asked for, each once, in order within a task; a stream goes on from its checkpoint,
          whoever was restarted; a task needs memory for two reads; what is no longer there is an error, or skipped
          where `failOnDataLoss` is false.
Never     joins a group: reading moves nobody's place and settles nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dovetail.reports.source_options import LANE_NAMES, Log, Options, SourceError, read_options
from dovetail.reports.source_plan import Bounds, Slice, Wanted, check_named, limited, narrow, place, shown, split
from dovetail.runtime.client import DovetailError, Fetched, Message, blocking
from dovetail.runtime.client.producer import LANES

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter

    from dovetail.runtime.client.producer import Priority

NAME = "dovetail"
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
COLUMNS = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", ArrayType(_HEADER)),
        StructField("lane", StringType()),
    ]
)
PLANNING_S = 5.0
"""How long planning waits for a connection: whoever waits for the plan wants to know soon that nobody is there."""
STALLS_MAX = 20
"""Reads in a row that bring nothing of what is there."""

Ends = dict[str, dict[str, int]]
"""Offsets as Spark keeps them: topic, partition (`0`, with lanes `0/high`), and the offset that comes next."""


class DovetailSource(DataSource):
    """What Spark asks for readers and writers."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self.chosen = read_options(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(_to_read(self.chosen), _checked(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(_to_read(self.chosen), _checked(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from dovetail.reports.sink import BatchWriter

        if overwrite:
            raise SourceError('mode("overwrite"): what was published stays published, use mode("append")')
        return BatchWriter(self.chosen, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from dovetail.reports.sink import StreamWriter

        return StreamWriter(self.chosen, schema)


def _to_read(options: Options) -> Options:
    if not options.topics and not options.pattern:
        raise SourceError('nothing to read is named: use .option("topic", "orders") or .option("pattern", "orders.*")')
    return options


def _checked(schema: StructType) -> StructType:
    if [(each.name, each.dataType) for each in schema] != [(each.name, each.dataType) for each in COLUMNS]:
        raise SourceError(f"the columns of a topic are fixed, leave .schema(…) out: {COLUMNS.simpleString()}")
    return schema


class BatchReader(DataSourceReader):
    """Reads what is there when the query is planned."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._wanted = Wanted().within(options.since_ms, options.until_ms)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._wanted, left = narrow(self._wanted, filters)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        options, wanted = self._options, self._wanted
        with connected(options, PLANNING_S) as client:
            logs = read_logs(client, options)
        check_named(options.start, logs, "startingOffset")
        check_named(options.end, logs, "endingOffset")
        found: list[InputPartition] = []
        for log, kept in logs.items():
            first, end = place(options.start, log, kept), place(options.end, log, kept)
            _check_end(options, log, end, kept)
            if wanted.has(log):
                part = Slice(*log, max(first, wanted.first), min(end, wanted.end), first >= wanted.first)
                found += split(part, options.per_task)
        return found

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_slice(self._options, self._schema, self._wanted, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes; Spark keeps the offsets."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._wanted = Wanted().within(options.since_ms, options.until_ms)
        self._client: blocking.Client | None = None
        self._last: dict[Log, int] | None = None
        """Where to stop, where only what is there now is wanted."""

    def initialOffset(self) -> dict[str, Any]:
        logs = self._logs()
        check_named(self._options.start, logs, "startingOffset")
        starts = {log: place(self._options.start, log, kept) for log, kept in logs.items()}
        for log, kept in logs.items():
            _check_end(self._options, log, starts[log], kept)
        return _as_ends({log: min(starts[log], kept[1]) for log, kept in logs.items()})

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.per_trigger) if self._options.per_trigger else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        began = _as_logs(start)
        logs = self._logs()
        for log, offset in began.items():
            if log in logs:
                _check_end(self._options, log, offset, logs[log])
            elif self._options.fail_on_data_loss:
                raise SourceError(f"{shown(log)} was read up to {offset} and is not there any more. {_LOSS}")
        ends = {log: self._end(log, kept, began.get(log, 0)) for log, kept in logs.items()}
        # What is gone keeps its place: should it come again, it goes on from its old end.
        ends = {**{log: offset for log, offset in began.items() if log not in ends}, **ends}
        if isinstance(limit, ReadMaxRows):
            starts = {**{log: kept[0] for log, kept in logs.items()}, **began}
            ends = limited(starts, ends, limit.max_rows)
        return _as_ends(ends)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return _as_ends({log: kept[1] for log, kept in self._logs().items()})

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = {log: kept[1] for log, kept in self._logs().items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        began = _as_logs(start)
        found: list[InputPartition] = []
        for log, stop in _as_logs(end).items():
            # A topic that came later, or is another one of the same name, is read from what it had first.
            goes_on = began.get(log, stop + 1) <= stop
            part = Slice(*log, began[log] if goes_on else 0, stop, goes_on)
            found += split(part, self._options.per_task)
        return found

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_slice(self._options, self._schema, self._wanted, partition)

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _logs(self) -> dict[Log, Bounds]:
        with said(self._options):
            if self._client is None:
                client = self._options.connect()
                client.open()
                self._client = client
            return read_logs(self._client, self._options)

    def _end(self, log: Log, kept: Bounds, read: int) -> int:
        end = place(self._options.end, log, kept)
        if self._last is not None:
            end = min(end, self._last.get(log, kept[0]))
        # Never back, whatever the options say now; unless the log is shorter: it is another one of the same name then.
        return max(end, read) if read <= kept[1] else end


def read_logs(client: blocking.Client, options: Options) -> dict[Log, Bounds]:
    """The logs that the options name, in order, with what they keep."""
    found = [topic for pattern in options.topics or (options.pattern,) for topic in client.topics(pattern)]
    missing = sorted(set(options.topics) - {topic.name for topic in found})
    if missing:
        there = [topic.name for topic in client.topics("#")]
        close = difflib.get_close_matches(missing[0], there, 1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(there[:10]) or 'none'}"
        raise SourceError(f"{options.url} has no topic {missing[0]!r}: {hint}")
    return {(topic.name, log.partition, log.lane): (log.start, log.end) for topic in found for log in topic.partitions}


_LOSS = 'Read on without it with .option("failOnDataLoss", "false")'


def _check_end(options: Options, log: Log, offset: int, kept: Bounds) -> None:
    if offset > kept[1] and options.fail_on_data_loss:
        raise SourceError(f"{shown(log)} ends before offset {kept[1]}, so there is no {offset}. {_LOSS}")


def _as_ends(logs: Mapping[Log, int]) -> Ends:
    ends: Ends = {}
    for (topic, partition, lane), offset in sorted(logs.items()):
        ends.setdefault(topic, {})[f"{partition}/{LANE_NAMES[lane]}" if lane else str(partition)] = offset
    return ends


def _as_logs(ends: Ends) -> dict[Log, int]:
    found: dict[Log, int] = {}
    for topic, each in ends.items():
        for name, at in each.items():
            partition, _, lane = name.partition("/")
            found[topic, int(partition), LANES.get(lane, 0)] = at
    return found


@contextmanager
def said(options: Options) -> Iterator[None]:
    """What the client raises, as one line that names the broker."""
    try:
        yield
    except DovetailError as error:
        text = str(error)
        raise SourceError(text if options.url in text else f"{options.url}: {text}") from None


@contextmanager
def connected(options: Options, timeout_s: float | None = None) -> Iterator[blocking.Client]:
    """A client, closed at the end."""
    with said(options), options.connect(timeout_s) as client:
        yield client


def read_slice(options: Options, schema: StructType, wanted: Wanted, part: InputPartition) -> Iterator[Any]:
    """One task's rows as Arrow batches, one for each read; the next read is under way meanwhile."""
    if not isinstance(part, Slice):
        return  # Spark asks even where there is nothing to read.
    from pyspark.sql.pandas.types import to_arrow_schema

    columns = to_arrow_schema(schema, timezone="UTC")
    with connected(options) as client:
        for messages in _messages(client, options, part):
            batch = _to_arrow(part, [each for each in messages if _is_timely(wanted, each)], columns)
            if batch.num_rows:
                yield batch


def _messages(client: blocking.Client, options: Options, part: Slice) -> Iterator[Sequence[Message]]:
    at = part.first
    stalls = 0
    coming = _fetch(client, options, part, at, 0)
    while at < part.end:
        found = coming.result()
        if found.start > at and at < part.end:
            if options.fail_on_data_loss and part.must_be_there:
                gone = f"offsets {at} to {min(found.start, part.end) - 1} of {shown(part.log)}"
                raise SourceError(f"{gone} are no longer there: retention took them before they were read. {_LOSS}")
            at = min(found.start, part.end)
        if found.end < part.end:
            if options.fail_on_data_loss:
                raise SourceError(
                    f"{shown(part.log)} ends before offset {found.end}, so {part.end - 1} can't be read. {_LOSS}"
                )
            if found.next_offset >= found.end and not found.messages:
                return
        stalls = stalls + 1 if found.next_offset <= at and not found.messages else 0
        if stalls > STALLS_MAX:
            raise SourceError(f"{part}: {options.url} says that there is more from offset {at} on, but sends nothing")
        at = max(at, found.next_offset)
        if at < part.end:
            coming = _fetch(client, options, part, at, 50 if stalls else 0)
        yield [each for each in found.messages if part.first <= each.offset < part.end]


def _fetch(client: blocking.Client, options: Options, part: Slice, at: int, wait_ms: int) -> Future[Fetched]:
    return client.fetch(
        part.topic,
        partition=part.partition,
        lane=cast("Priority | None", LANE_NAMES.get(part.lane)),
        offset=at,
        bytes_max=options.fetch_bytes,
        wait=wait_ms / 1000,
    )


def _is_timely(wanted: Wanted, message: Message) -> bool:
    return wanted.all_times or wanted.since_us <= message.timestamp_ms * 1000 < wanted.until_us


def _to_arrow(part: Slice, messages: Sequence[Message], columns: Any) -> Any:
    import pyarrow as pa

    count = len(messages)
    headers = [
        [{"key": key, "value": value} for key, value in each.raw_headers] if each.raw_headers else []
        for each in messages
    ]
    values: list[Any] = [
        [part.topic] * count,
        [part.partition] * count,
        [each.offset for each in messages],
        [each.timestamp_ms * 1000 for each in messages],
        [each.key for each in messages],
        [each.value for each in messages],
        headers,
        [LANE_NAMES.get(part.lane)] * count,
    ]
    arrays = [pa.array(value, type=field.type) for value, field in zip(values, cast("list[Any]", columns), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)
