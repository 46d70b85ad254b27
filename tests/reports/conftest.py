"""One Spark session for the whole suite: starting one takes longer than most tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from dovetail.reports.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that use Spark run in one process, so that only one Java starts."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The suite's session, set up for many small queries: compiling costs more than running here."""
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    with session("local[2]", memory="1g", settings=SMALL) as found:
        yield found
