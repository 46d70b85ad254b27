"""The Spark session: one place that says how Spark is set up, on this machine and on a cluster.

Promises  out of the box it runs on all cores of this machine within stated memory, keeps quiet, and shows times in UTC;
          with another `master` nothing else changes; a master that is wrong or away is said in one line, soon.
Never     opens a web page, writes into the current directory, or keeps a session that nobody asked for.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.reports.errors import ReportError
from dovetail.reports.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[*]"
MEMORY = "2g"
ROWS_PER_PIECE = 500_000
REACH_S = 5.0
"""How long a cluster's master may take to accept a connection."""
_MASTERS = re.compile(
    r"local(\[(\d+|\*)(,\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|spark://[^,\s]+(,[^,\s]+)*|yarn|k8s://\S+"
)


class WrongMaster(ReportError):
    """Spark can't run there."""


def session(
    master: str = MASTER,
    *,
    name: str = "dovetail",
    memory: str = MEMORY,
    settings: Mapping[str, str] | None = None,
    silent: bool = False,
) -> SparkSession:
    """The Spark session of this process, made when there is none. `settings` are Spark's own, and win. A `silent` one
    logs nothing: for whoever says in words of their own what Spark raises."""
    check_master(master)
    os.environ["JAVA_HOME"] = java_home(os.environ)
    if master.startswith("local"):
        # Spark's own setting for it is only heeded by `spark-submit`.
        os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    chosen = {**_settings(master, memory, "off" if silent else "error"), **(settings or {})}
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise WrongMaster(f"Spark does not start with --master {master}: {first}") from error


def fit(spark: SparkSession, rows: int) -> None:
    """On one machine: pieces so small that they are sorted and counted in memory, whatever the size of a trace."""
    if (spark.sparkContext.master or "").startswith("local") and spark.conf.get("spark.sql.adaptive.enabled") == "true":
        spark.conf.set("spark.sql.shuffle.partitions", str(max(_pieces(), rows // ROWS_PER_PIECE)))


def _pieces() -> int:
    # Few and large beats many and small; on a cluster Spark's own 200 are right.
    return max(8, 2 * (os.cpu_count() or 1))


def check_master(master: str) -> None:
    """Refuse what Spark would not understand, and a master that does not answer: Spark itself tries for minutes."""
    if not _MASTERS.fullmatch(master):
        raise WrongMaster(
            f"{master!r} is no Spark master: use local[*], local[N], spark://HOST:PORT, yarn or k8s://URL"
        )
    if master.startswith("spark://"):
        places = master.removeprefix("spark://").split(",")
        reasons = [_unreachable(place) for place in places]
        if all(reasons):
            raise WrongMaster(
                f"no Spark master answers at {master} ({'; '.join(reasons)}): check the address, or start one there; "
                f"--master {MASTER} runs on this machine"
            )


def _unreachable(place: str) -> str:
    """Why nobody is reached at HOST:PORT; "" when somebody is."""
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal():
        return f"{place} is not HOST:PORT"
    try:
        socket.create_connection((host, int(port)), timeout=REACH_S).close()
    except (OSError, OverflowError) as error:
        return f"{place}: {error}"
    return ""


def _settings(master: str, memory: str, level: str) -> dict[str, str]:
    log = Path(__file__).resolve().with_name("log4j2.properties")
    found = {
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile=file:{log} -Ddovetail.log={level} -Duser.timezone=UTC"
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.warehouse.dir": Path(tempfile.gettempdir(), "dovetail-warehouse").as_uri(),
    }
    if master.startswith("local"):
        found |= {
            # Nobody else may connect to a session on one machine, whatever its name resolves to.
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(_pieces()),
            # Files between the steps of a query go when the query's objects do: soon, or a large trace fills the disk.
            "spark.cleaner.periodicGC.interval": "2min",
        }
    return found
