"""Read and write a running broker's topics with Spark.

from dovetail.spark import register

register(spark)
orders = spark.read.format("dovetail").option("topic", "orders").load()
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `format("dovetail")` known to a Spark session, and have it hand filters over.

    On a cluster the executors need this package: install it there, or send it with `--py-files` or `--archives`.
    """
    from dovetail.reports.source import DovetailSource

    if str(spark.conf.get("spark.master")).startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        # Spark would start whatever `python3` is on the path, which need not be the one that has this package.
        spark.sparkContext.pythonExec = sys.executable
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(DovetailSource)
