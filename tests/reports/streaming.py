"""A Structured Streaming job of its own process, for tests that end it without warning.

python -m tests.reports.streaming URL CHECKPOINT
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from dovetail.reports.session import session
from dovetail.spark import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


WORKER_IS_SLOW = "failed to connect back"
"""Spark gives a Python process of its own ten seconds to start, which a busy machine may need longer for."""


def copy(spark: SparkSession, url: str, checkpoint: str, *, to_the_end: bool = False) -> None:
    """Write where each message of `orders` lies to the topic `copies`: for ever, or what there is now."""
    rows = (
        spark.readStream.format("dovetail")
        .options(url=url, topic="orders", maxOffsetsPerTrigger="300", maxOffsetsPerTask="150")
        .load()
        .selectExpr("concat(partition, ':', offset, '=', cast(value as string)) as value", "0 as partition")
    )
    writing = rows.writeStream.format("dovetail").options(url=url, topic="copies", checkpointLocation=checkpoint)
    if to_the_end:
        writing = writing.trigger(availableNow=True)
    while True:
        try:
            writing.start().awaitTermination()
        except StreamingQueryException as error:
            if WORKER_IS_SLOW not in str(error):
                raise
        else:
            return


if __name__ == "__main__":
    with session("local[2]", memory="1g") as here:
        register(here)
        copy(here, *sys.argv[1:])
