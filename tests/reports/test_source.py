"""Spark reads and writes a real broker's topics: exactly what was asked for, once, whoever is restarted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType

from dovetail.core.state import Settings
from dovetail.reports import sink
from dovetail.reports.source import COLUMNS, DovetailSource, StreamReader, _as_ends, _as_logs
from dovetail.reports.source_options import SourceError, read_options
from dovetail.runtime.client import blocking
from dovetail.runtime.security import Entry, digest_of, new_token, write_entries
from dovetail.spark import register
from dovetail.torture import Process
from tests.broker.house import House, wait_until
from tests.reports.streaming import copy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 1_200
PARTITIONS = 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A broker with 1,200 messages in three partitions of `orders`, and one in `lone`."""
    house = House(str(tmp_path_factory.mktemp("broker")), Settings(partitions=PARTITIONS))
    with blocking.connect(url(house)) as dv:
        with dv.producer("orders", linger_ms=2, batch_bytes=2_000) as orders:
            for number in range(COUNT):
                headers = {"number": str(number)} if number % 2 else None
                orders.send(f"order {number}", key=f"k{number % 50}", headers=headers)
        dv.publish("lone", "alone")
    yield house
    house.stop()


@pytest.fixture(scope="module")
def spark_with(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def url(house: House) -> str:
    return f"dovetail://127.0.0.1:{house.port}"


def load(spark: SparkSession, house: House, **options: str) -> DataFrame:
    return spark.read.format("dovetail").options(url=url(house), **options).load()


def test_every_message_is_read_once_as_it_was_sent(spark_with: SparkSession, broker: House) -> None:
    rows = load(spark_with, broker, topic="orders,lone", maxOffsetsPerTask="100", fetchBytes="4000").collect()
    lone = [row for row in rows if row.topic == "lone"]
    orders = [row for row in rows if row.topic == "orders"]
    assert [bytes(row.value) for row in lone] == [b"alone"]
    assert sorted(bytes(row.value) for row in orders) == sorted(b"order %d" % number for number in range(COUNT))
    assert len({(row.partition, row.offset) for row in orders}) == COUNT
    for row in orders:
        number = int(bytes(row.value).split()[1])
        assert bytes(row.key) == b"k%d" % (number % 50)
        assert [(each.key, bytes(each.value)) for each in row.headers] == (
            [("number", b"%d" % number)] if number % 2 else []
        )
        assert row.timestamp.year >= 2024


def test_exactly_the_offsets_asked_for_by_options_and_filters(spark_with: SparkSession, broker: House) -> None:
    places = {"startingOffset": json.dumps({"orders": {"0": 5, "1": "latest"}}), "endingOffset": "60"}
    found = load(spark_with, broker, topic="orders", **places).where("offset <> 7 and partition < 2 and offset <= 50")
    plan = found._jdf.queryExecution().executedPlan().toString()
    assert sorted((row.partition, row.offset) for row in found.select("partition", "offset").collect()) == [
        (0, offset) for offset in range(5, 51) if offset != 7
    ]
    # What the source has taken over is not done again: only the inequality is left for Spark.
    assert "<= 50" not in plan
    assert "< 2" not in plan


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topic": "order"}, "has no topic 'order': did you mean orders?"),
        ({"topic": "orders", "url": "127.0.0.1:1"}, "no broker at dovetail://127.0.0.1:1"),
        ({"topic": "orders", "endingOffset": "9999999"}, "ends before offset"),
        ({"topic": "orders", "startingOffset": '{"orders": {"9": 0}}'}, "names partition 9 of topic 'orders'"),
        ({}, "nothing to read is named"),
    ],
)
def test_what_can_not_be_read_is_one_line_that_says_why(broker: House, options: dict[str, str], says: str) -> None:
    with pytest.raises(SourceError) as refused:
        read(url=url(broker), **options) if "url" not in options else read(**options)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def read(**options: str) -> list[dict[str, Any]]:
    """What Spark would be handed, without Spark."""
    reader = DovetailSource(options).reader(COLUMNS)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_a_mistake_reaches_whoever_uses_spark_as_one_line(spark_with: SparkSession, broker: House) -> None:
    with pytest.raises(AnalysisException, match="SourceError: there is no option 'tpoic', did you mean topic"):
        load(spark_with, broker, tpoic="orders")


def test_a_job_that_is_written_again_under_its_id_stores_nothing_twice(spark_with: SparkSession, broker: House) -> None:
    rows = load(spark_with, broker, topic="orders").selectExpr("key", "value", "headers", "partition").coalesce(1)
    for _ in range(2):
        rows.write.format("dovetail").mode("append").options(
            url=url(broker), topic="copied", writeId="nightly", batchRows="7"
        ).save()
    copied = [row["value"] for row in read(url=url(broker), topic="copied")]
    assert sorted(copied) == sorted(b"order %d" % number for number in range(COUNT))


def test_a_task_that_fails_in_the_middle_and_runs_again_stores_nothing_twice(broker: House) -> None:
    options = read_options({"url": url(broker), "topic": "retried", "batchRows": "10"})
    place = sink._place("a job", 0, 0)
    batch = pa.record_batch({"value": [f"row {number}" for number in range(200)]})

    def failing() -> Iterator[Any]:
        yield batch
        raise ConnectionResetError("the executor is lost")

    with pytest.raises(ConnectionResetError):
        sink._write(options, place, 0, failing())
    after = pa.record_batch({"value": [f"row {number}" for number in range(200, 205)]})
    for _ in range(2):
        assert sink._write(options, place, 0, iter([batch, after])).messages == 205
    with blocking.connect(url(broker)) as dv:
        found = dv.fetch("retried", bytes_max=1 << 20).result()
    assert [message.text for message in found.messages] == [f"row {number}" for number in range(205)]


def test_a_task_of_an_older_batch_of_the_stream_is_fenced(broker: House) -> None:
    options = read_options({"url": url(broker), "topic": "fenced"})
    rows = pa.record_batch({"value": ["x"]})
    sink._write(options, sink._place("a query", 0, 5), 0, iter([rows]))
    with pytest.raises(SourceError, match="has gone on to epoch 5"):
        sink._write(options, sink._place("a query", 0, 4), 0, iter([rows]))


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"value": IntegerType(), "topic": StringType()}, "column value is int, it must be binary or string"),
        ({"value": StringType(), "text": StringType()}, "'text' means nothing to a topic"),
        ({"key": StringType()}, "no column value"),
        ({"value": StringType()}, "no topic is named"),
        ({"value": StringType(), "topic": StringType(), "headers": StringType()}, "column headers is string"),
    ],
)
def test_rows_that_are_no_messages_are_refused_by_their_columns(columns: dict[str, DataType], says: str) -> None:
    schema = StructType([StructField(name, type) for name, type in columns.items()])
    with pytest.raises(SourceError, match=says):
        DovetailSource({} if says == "no topic is named" or "topic" in columns else {"topic": "x"}).writer(
            schema, False
        )


def test_what_retention_took_is_an_error_or_skipped(broker: House) -> None:
    with blocking.connect(url(broker)) as dv:
        for number in range(4):
            dv.publish("short", str(number), partition=0)
    trim(broker, "short", 3)
    asked = {"url": url(broker), "topic": "short", "startingOffset": "1"}
    with pytest.raises(SourceError, match="retention took them"):
        read(**asked)
    assert [row["offset"] for row in read(**asked, failOnDataLoss="false")] == [3]
    assert len(read(url=url(broker), topic="short")) == 1


def test_only_messages_of_the_time_asked_for(broker: House) -> None:
    times = sorted(row["timestamp"] for row in read(url=url(broker), topic="orders"))
    middle = times[COUNT // 2]
    asked = {"url": url(broker), "topic": "orders"}
    since = read(**asked, startingTime=middle.isoformat())
    until = read(**asked, endingTime=middle.isoformat())
    assert all(row["timestamp"] >= middle for row in since)
    assert all(row["timestamp"] < middle for row in until)
    assert len(since) + len(until) == COUNT


def stream(house: House, **options: str) -> StreamReader:
    return StreamReader(read_options({"url": url(house), **options}), COLUMNS)


def one_batch(reader: StreamReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    """What Spark would do for a batch: where it ends, and what it brings."""
    end = reader.latestOffset(start, ReadAllAvailable())
    parts = reader.partitions(start, end)
    return end, [row["value"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def test_a_stream_goes_on_over_a_topic_that_was_deleted_and_made_anew(broker: House) -> None:
    with blocking.connect(url(broker)) as dv:
        for number in range(5):
            dv.publish("anew", f"old {number}", partition=0)
        reader = stream(broker, topic="anew")
        end, _ = one_batch(reader, reader.initialOffset())
        ask(broker, "DELETE", "/v1/topics/anew")
        with pytest.raises(SourceError, match="has no topic 'anew'"):
            one_batch(reader, end)
        for number in range(2):
            dv.publish("anew", f"new {number}", partition=0)
    assert one_batch(reader, end)[1] == [b"new 0", b"new 1"]
    reader.stop()


def test_a_stream_over_a_log_that_is_shorter_than_what_was_read_says_so_or_reads_it_from_its_start(
    broker: House,
) -> None:
    ask(broker, "POST", "/v1/topics", {"name": "other", "partitions": 1})
    with blocking.connect(url(broker)) as dv:
        dv.publish("other", "of another broker")
    read_before = {"other": {"0": 5}}
    strict, lenient = stream(broker, topic="other"), stream(broker, topic="other", failOnDataLoss="false")
    with pytest.raises(SourceError, match="partition 0 of topic 'other' ends before offset 1, so there is no 5"):
        one_batch(strict, read_before)
    assert one_batch(lenient, read_before) == ({"other": {"0": 1}}, [b"of another broker"])
    strict.stop()
    lenient.stop()


def test_a_stream_never_goes_back_to_what_it_has_read_whatever_its_options_say_now(broker: House) -> None:
    ask(broker, "POST", "/v1/topics", {"name": "single", "partitions": 1})
    with blocking.connect(url(broker)) as dv:
        dv.publish("single", "alone")
    whole = stream(broker, topic="single")
    end, values = one_batch(whole, whole.initialOffset())
    assert values == [b"alone"]
    shorter = stream(broker, topic="single", endingOffset="0")
    assert one_batch(shorter, end) == (end, [])
    beyond = stream(broker, topic="single", startingOffset="7")
    with pytest.raises(SourceError, match="ends before offset 1, so there is no 7"):
        beyond.initialOffset()
    lenient = stream(broker, topic="single", startingOffset="7", failOnDataLoss="false")
    assert one_batch(lenient, lenient.initialOffset()) == (end, [])
    for each in (whole, shorter, beyond, lenient):
        each.stop()


def ask(house: House, method: str, path: str, body: dict[str, Any] | None = None) -> None:
    """An HTTP request that must be taken."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"http://127.0.0.1:{house.http_port}{path}", data, method=method)
    asked.add_header("content-type", "application/json")
    urllib.request.urlopen(asked, timeout=20).close()


def trim(house: House, topic: str, start: int) -> None:
    from dovetail.core.inputs import TrimLog

    def submit() -> None:
        durable = house.server.node.state.durable
        log = durable.topics[durable.topics_by_name[topic]].first_log
        house.server.node.submit(TrimLog(log, start, start))
        house.server.wake()

    house.call(submit)
    with blocking.connect(url(house)) as dv:
        wait_until(lambda: dv.topics(topic)[0].partitions[0].start == start, "the log was not trimmed")


@pytest.mark.skipif("DOVETAIL_SPARK_RESTARTS" not in os.environ, reason="a second Spark: set DOVETAIL_SPARK_RESTARTS=1")
def test_a_stream_survives_the_ends_of_broker_and_spark_without_losing_or_repeating_an_offset(
    spark_with: SparkSession, tmp_path: Path
) -> None:
    data, checkpoint = str(tmp_path / "data"), tmp_path / "checkpoint"
    broker = Process(data, "--partitions", str(PARTITIONS))
    place = f"127.0.0.1:{broker.port()}"
    published = threading.Event()

    def publish() -> None:
        with (
            blocking.connect(place, timeout=120, connect_timeout=120) as dv,
            dv.producer("orders", idempotent=True, linger_ms=20, batch_bytes=1_000) as orders,
        ):
            for number in range(COUNT):
                orders.send(f"order {number}", key=str(number))
        published.set()

    with blocking.connect(place) as dv:
        dv.publish("orders", "the first", key="0")
    command = [sys.executable, "-m", "tests.reports.streaming", place, str(checkpoint)]
    job = subprocess.Popen(command, start_new_session=True)
    publisher = threading.Thread(target=publish)
    try:
        wait_until(lambda: batches(checkpoint) >= 1, "the stream did not begin", patience_s=400)
        publisher.start()
        wait_until(lambda: batches(checkpoint) >= 2, "the stream did not go on", patience_s=200)
        broker.kill()
        broker = Process(data, "--partitions", str(PARTITIONS), listen=place)
        broker.port()
        before = batches(checkpoint)
        wait_until(lambda: batches(checkpoint) > before, "it did not survive the broker", patience_s=200)
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        wait_until(published.is_set, "publishing did not end", patience_s=200)
        copy(spark_with, place, str(checkpoint), to_the_end=True)
        with blocking.connect(place) as dv:
            ends = {log.partition: log.end for log in dv.topics("orders")[0].partitions}
            copies = read_all(dv, "copies")
        assert sum(ends.values()) == COUNT + 1
        assert sorted(copies) == sorted(f"{partition}:{at}" for partition, end in ends.items() for at in range(end))
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        if publisher.ident is not None:
            publisher.join(120)
        broker.kill()


def batches(checkpoint: Path) -> int:
    """How many of its batches a stream has finished."""
    folder = checkpoint / "commits"
    return sum(each.name.isdecimal() for each in folder.iterdir()) if folder.is_dir() else 0


def read_all(dv: blocking.Client, topic: str) -> list[str]:
    found: list[str] = []
    at = 0
    while at < dv.topics(topic)[0].partitions[0].end:
        read = dv.fetch(topic, offset=at).result()
        found += [message.text.partition("=")[0] for message in read.messages]
        at = read.next_offset
    return found


def test_a_broker_that_speaks_tls_and_wants_a_token_is_read_and_written_by_who_has_both(tmp_path: Path) -> None:
    cert, tokens, token = tmp_path / "cert.pem", tmp_path / "tokens.yaml", new_token()
    key = make_certificate(cert)
    write_entries(str(tokens), [Entry("abel", "write", digest_of(token))])
    words = ("--set", f"tls.cert={cert}", "--set", f"tls.key={key}", "--tokens", str(tokens))
    broker = Process(str(tmp_path / "data"), *words)
    place = f"127.0.0.1:{broker.port()}"
    good = {"url": f"dovetails://{place}", "ca": str(cert), "token": token, "topic": "orders", "timeout": "5s"}
    try:
        rows = pa.record_batch({"value": ["a secret"]})
        assert sink._write(read_options(good), sink._place("a job", 0, 0), 0, iter([rows])).messages == 1
        assert [row["value"] for row in read(**good)] == [b"a secret"]
        for change, says in (
            ({"token": "not this"}, "the token is not known"),
            ({"ca": ""}, "is not trusted: self-signed certificate; `ca` names who is"),
            ({"ca": str(key)}, "can't be used (it holds no certificate)"),
            ({"ca": "/no/such.pem"}, "can't be used (No such file or directory)"),
            ({"url": place, "ca": "", "timeout": "1s"}, "is it dovetails:// there, with TLS?"),
            ({"url": place}, "ca is for brokers that speak TLS"),
        ):
            with pytest.raises(SourceError) as refused:
                read(**{**good, **change})
            assert says in str(refused.value)
            assert "\n" not in str(refused.value)
    finally:
        broker.kill()


def make_certificate(cert: Path) -> Path:
    """A certificate of this machine, signed by itself; where its key is."""
    key = cert.with_name("key.pem")
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    try:
        subprocess.run([*words, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("NO OPENSSL: TLS was not tested")
    return key


LANED = [("critical", 3), ("normal", 4), ("background", 5)]


def test_each_lane_is_a_log_of_its_own_that_is_read_and_written_exactly(
    spark_with: SparkSession, broker: House
) -> None:
    ask(broker, "POST", "/v1/topics", {"name": "jobs", "lanes": True, "partitions": 2})
    batch = pa.record_batch(
        {
            "value": [f"{lane} {number}" for lane, count in LANED for number in range(count)],
            "lane": [
                None if lane == "normal" and number % 2 else lane for lane, count in LANED for number in range(count)
            ],
            "partition": [1 for _, count in LANED for _ in range(count)],
        }
    )
    options = read_options({"url": url(broker), "topic": "jobs", "batchRows": "2"})
    for _ in range(2):
        assert sink._write(options, sink._place("lanes", 0, 0), 0, iter([batch])).messages == 12
    whole = load(spark_with, broker, topic="jobs")
    found = sorted((row.lane, row.partition, row.offset, bytes(row.value).decode()) for row in whole.collect())
    assert found == sorted((lane, 1, at, f"{lane} {at}") for lane, count in LANED for at in range(count))
    places = json.dumps({"jobs": {"1": 1, "1/background": 3}})
    some = load(spark_with, broker, topic="jobs", startingOffset=places).where("lane in ('background', 'critical')")
    assert sorted((row.lane, row.offset) for row in some.collect()) == [
        ("background", 3),
        ("background", 4),
        ("critical", 1),
        ("critical", 2),
    ]
    # What has no lanes takes rows of any: they are one log there, and numbered as one.
    plain = read_options({"url": url(broker), "topic": "plain", "batchRows": "2"})
    batch = batch.drop_columns("partition")
    assert sink._write(plain, sink._place("lanes", 0, 0), 0, iter([batch])).messages == 12
    assert len(read(url=url(broker), topic="plain")) == 12


def test_a_stream_keeps_the_place_of_each_lane() -> None:
    logs = {("jobs", 0, 1): 7, ("jobs", 0, 5): 8, ("orders", 2, 0): 9}
    ends = _as_ends(logs)
    assert ends == {"jobs": {"0/critical": 7, "0/background": 8}, "orders": {"2": 9}}
    assert _as_logs(ends) == logs


@pytest.mark.skipif("DOVETAIL_SPARK_RESTARTS" not in os.environ, reason="two queries: set DOVETAIL_SPARK_RESTARTS=1")
def test_the_example_prices_each_order_once(spark_with: SparkSession, broker: House, tmp_path: Path) -> None:
    from examples import spark_copy

    assert spark_copy.main(url(broker), str(tmp_path), spark_with) == {"tea": 300, "mug": 225}
