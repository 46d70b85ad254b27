"""Rows of Spark as messages of a broker: batches of rows, each stored once.

Who writes is not a process but a place in a job: the producer's number is made of the query (or `writeId`) and the
task's partition, its epoch counts the stream's batches, and the messages of each topic's partition are numbered in the
order of the rows. A task that is tried again says the same under the same numbers, and the broker stores it once.

Promises  a task that runs again, also beside itself, and a stream's batch that is repeated after a restart store
          nothing twice, as long as the rows come in the same order again and the broker has heard of fewer than
          10,000 other pairs of producer and partition in between; what an older batch still sends is refused.
Never     takes anything back: messages of a task that failed are readable before the job is done.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from dovetail.reports.source_options import Log, Options, SourceError
from dovetail.runtime.client import blocking, partition_of
from dovetail.runtime.client.appending import Identity
from dovetail.runtime.client.producer import LANES

EPOCHS: Final = 1 << 15
UNDER_WAY_MAX: Final = 8
"""Batches of a task on their way, of different logs: those of one log follow each other."""
RECORD_BYTES: Final = 64
"""About what a message costs beside its key, value and headers."""

_COLUMNS = ("topic", "partition", "key", "value", "headers", "lane")
_TEXT_OR_BYTES = (StringType, BinaryType)
_NUMBERS = (ByteType, ShortType, IntegerType, LongType)

Headers = tuple[tuple[str, bytes | None], ...]
Record = tuple[bytes | None, bytes | None, Headers]


@dataclass(frozen=True)
class Stored(WriterCommitMessage):
    """What one task has stored."""

    messages: int


@dataclass(frozen=True)
class _Place:
    """Whose messages these are: a job's task, and which batch of its stream."""

    producer: int
    epoch: int


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame. Under a `writeId` the whole job may be run again."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        _check_schema(options, schema)
        self._job = options.write_id or secrets.token_hex(16)

    def write(self, iterator: Iterator[Any]) -> Stored:
        task = _task()
        return _write(self._options, _place(self._job, task.partitionId(), 0), task.partitionId(), iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream's batches; the query's id, which its checkpoint keeps, says who writes."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        _check_schema(options, schema)

    def write(self, iterator: Iterator[Any]) -> Stored:
        task = _task()
        query, batch = task.getLocalProperty("sql.streaming.queryId"), task.getLocalProperty("streaming.sql.batchId")
        if not query or not batch:
            raise SourceError("Spark does not say which query and batch this is: a stream is written by writeStream")
        partition = task.partitionId()
        return _write(
            self._options, _place(self._options.write_id or query, partition, int(batch)), partition, iterator
        )


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise SourceError("rows are written by Spark's tasks, this is none")
    return task


def _place(job: str, partition: int, batch: int) -> _Place:
    """The producer's number and epoch; an epoch has 15 bits, after which comes another producer."""
    era, epoch = divmod(batch, EPOCHS)
    digest = blake2b(f"{job}/{partition}/{era}".encode(), digest_size=8, person=b"dovetail spark").digest()
    return _Place(int.from_bytes(digest, "big") >> 1, epoch)


def _check_schema(options: Options, schema: StructType) -> None:
    types: dict[str, DataType] = {field.name: field.dataType for field in schema}
    unknown = [name for name in types if name not in _COLUMNS]
    if unknown:
        raise SourceError(f"column {unknown[0]!r} means nothing to a topic: columns are {', '.join(_COLUMNS)}")
    if "value" not in types:
        raise SourceError(
            'there is no column value: what shall the messages hold? Select one, such as to_json(struct("*"))'
        )
    if "topic" not in types and not options.topic:
        raise SourceError('no topic is named: use .option("topic", "orders"), or give the rows a column topic')
    for name, wanted in (
        ("topic", (StringType,)),
        ("partition", _NUMBERS),
        ("key", _TEXT_OR_BYTES),
        ("value", _TEXT_OR_BYTES),
        ("lane", (StringType,)),
    ):
        if name in types and not isinstance(types[name], wanted):
            names = " or ".join(sorted({each().simpleString() for each in wanted}))
            raise SourceError(f"column {name} is {types[name].simpleString()}, it must be {names}: cast it")
    if "headers" in types and not _is_headers(types["headers"]):
        raise SourceError(
            f"column headers is {types['headers'].simpleString()}, it must be map<string,string> or "
            "array<struct<key:string,value:binary>>"
        )


def _is_headers(type: DataType) -> bool:
    if isinstance(type, MapType):
        return isinstance(type.keyType, StringType) and isinstance(type.valueType, _TEXT_OR_BYTES)
    if isinstance(type, ArrayType) and isinstance(type.elementType, StructType):
        return type.elementType.names == ["key", "value"]
    return False


def _write(options: Options, place: _Place, home_partition: int, batches: Iterator[Any]) -> Stored:
    from dovetail.reports.source import connected

    with connected(options) as client:
        sender = _Sender(client, options, place, home_partition)
        for batch in batches:
            sender.take(batch)
        return Stored(sender.finish())


class _Sender:
    """One task's messages: cut into batches by count and size alone, so that a repetition cuts them the same way."""

    def __init__(self, client: blocking.Client, options: Options, place: _Place, home_partition: int) -> None:
        self._client = client
        self._options = options
        self._place = place
        self._home_partition = home_partition
        self._counts: dict[str, int] = {}
        self._laned: dict[str, bool] = {}
        self._open: dict[Log, list[Record]] = {}
        self._sizes: dict[Log, int] = {}
        self._sequences: dict[Log, int] = {}
        self._under_way: deque[tuple[Log, Future[int | None]]] = deque()
        self._stored = 0

    def take(self, batch: Any) -> None:
        """Take the rows of an Arrow batch."""
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        nothing = [None] * batch.num_rows
        rows = zip(
            columns.get("topic", nothing),
            columns.get("partition", nothing),
            columns.get("key", nothing),
            columns["value"],
            columns.get("headers", nothing),
            columns.get("lane", nothing),
            strict=True,
        )
        knows_lanes = "lane" in columns
        for topic, partition, key, value, headers, lane_name in rows:
            topic = topic or self._options.topic
            lane = self._lane(topic, lane_name) if knows_lanes and topic else 0
            self._add(topic, partition, lane, (_bytes(key), _bytes(value), _headers(headers)))

    def finish(self) -> int:
        """Send what is left and wait for all of it; gives how many messages were stored."""
        for log in list(self._open):
            self._send(log)
        while self._under_way:
            self._wait()
        return self._stored

    def _add(self, topic: str, partition: int | None, lane: int, record: Record) -> None:
        if not topic:
            raise SourceError('a row names no topic, and .option("topic", …) does not either')
        log = (topic, self._partition(topic, record[0]) if partition is None else partition, lane)
        records = self._open.setdefault(log, [])
        records.append(record)
        size = self._sizes.get(log, 0) + RECORD_BYTES + _size(record)
        self._sizes[log] = size
        if len(records) >= self._options.batch_rows or size >= self._options.batch_bytes:
            self._send(log)

    def _partition(self, topic: str, key: bytes | None) -> int:
        """By the key's hash, as the client's producers do it; without a key a task keeps to one partition."""
        count = self._count(topic)
        return self._home_partition % count if key is None else partition_of(key, count)

    def _count(self, topic: str) -> int:
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = self._client.partition_count(topic)
        return count

    def _lane(self, topic: str, name: str | None) -> int:
        """The lane that a row goes to. Rows that end in one log must be numbered as one, whatever names they have."""
        if name is not None and name not in LANES:
            raise SourceError(f"column lane holds {name!r}: lanes are {', '.join(LANES)}")
        has_lanes = self._laned.get(topic)
        if has_lanes is None:
            self._count(topic)
            has_lanes = any(log.lane for found in self._client.topics(topic) for log in found.partitions)
            self._laned[topic] = has_lanes
        return LANES[name or "normal"] if has_lanes else 0

    def _send(self, log: Log) -> None:
        while len(self._under_way) >= UNDER_WAY_MAX or any(each == log for each, _ in self._under_way):
            self._wait()
        records = self._open.pop(log)
        del self._sizes[log]
        sequence = self._sequences.get(log, 0)
        self._sequences[log] = (sequence + len(records)) % (1 << 31)
        identity = Identity(self._place.producer, self._place.epoch, sequence)
        topic, partition, lane = log
        self._under_way.append((log, self._client.append(topic, partition, records, identity, lane)))
        self._stored += len(records)

    def _wait(self) -> None:
        self._under_way.popleft()[1].result()


def _size(record: Record) -> int:
    key, value, headers = record
    return len(key or b"") + len(value or b"") + sum(len(name) + len(each or b"") for name, each in headers)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _headers(given: Any) -> Headers:
    if not given:
        return ()
    pairs = [(each["key"], each["value"]) if isinstance(each, dict) else each for each in given]
    return tuple([(str(key), _bytes(value)) for key, value in pairs])
