"""Spark over a broker's topics: a question about a topic, and a stream that turns one topic into another.

- Reading joins no group: nobody's place moves.
- The stream's checkpoint holds the offsets. Started again with it, after new orders came or after it was killed,
  it prices each order once: the checkpoint also says who writes, so that a batch that is repeated is stored once.

Run a broker with `make serve`, then `python -m examples.spark_copy dovetail://127.0.0.1:7400 CHECKPOINT`.
"""

import sys
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, get_json_object, sum

from dovetail.reports.session import session
from dovetail.runtime.client.blocking import connect
from dovetail.spark import register

PRICES = {"tea": 4, "mug": 9}


def main(
    url: str = "dovetail://127.0.0.1:7400", checkpoint: str = "", spark: SparkSession | None = None
) -> dict[str, int]:
    """Publish orders, price them with a stream, and sum them up; gives what each item brought in."""
    spark = spark or session("local[2]")
    register(spark)
    with connect(url) as dv, dv.producer("orders.raw") as orders:
        for number in range(100):
            item = "tea" if number % 4 else "mug"
            orders.send(f'{{"item": "{item}", "price": {PRICES[item]}}}', key=item)

    raw = spark.readStream.format("dovetail").options(url=url, topic="orders.raw").load()
    priced = raw.select("key", get_json_object(col("value").cast("string"), "$.price").alias("value"))
    query = (
        priced.writeStream.format("dovetail")
        .options(url=url, topic="orders.priced", checkpointLocation=checkpoint or tempfile.mkdtemp())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    sums = (
        spark.read.format("dovetail")
        .options(url=url, topic="orders.priced")
        .load()
        .groupBy(col("key").cast("string").alias("item"))
        .agg(count("*").alias("orders"), sum(col("value").cast("string").cast("int")).alias("total"))
    )
    sums.show()
    return {row["item"]: row["total"] for row in sums.collect()}


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
