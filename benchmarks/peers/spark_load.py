"""The Spark script that people write by hand: tables by JDBC into Parquet, split by ``id``, without any state.

``python -m benchmarks.peers.spark_load URL USER PASSWORD FOLDER JARS ABOVE TABLE…`` loads rows whose ``id`` is above.
"""

import sys

from pyspark.sql import SparkSession

PARTITIONS = 4
FETCH_SIZE_ROWS = 10_000


def load(url: str, user: str, password: str, folder: str, jars: str, above: int, tables: list[str]) -> None:
    builder = SparkSession.builder.master("local[*]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.parquet.compression.codec", "zstd").getOrCreate()
    copy(spark, url, user, password, folder, above, tables)
    spark.stop()


def copy(spark: SparkSession, url: str, user: str, password: str, folder: str, above: int, tables: list[str]) -> None:
    """The script itself, in a session whose codec is zstd."""
    options = {"url": url, "user": user, "password": password, "driver": "org.postgresql.Driver"}
    for table in tables:
        reader = spark.read.format("jdbc").options(**options, fetchsize=str(FETCH_SIZE_ROWS))
        bounds = f"(SELECT min(id) AS low, max(id) AS high FROM public.{table} WHERE id > {above}) bounds"
        low, high = reader.option("dbtable", bounds).load().first() or (0, 0)
        rows = reader.option("dbtable", f"(SELECT * FROM public.{table} WHERE id > {above}) source").options(
            partitionColumn="id", lowerBound=str(low), upperBound=str(high), numPartitions=str(PARTITIONS)
        )
        rows.load().write.mode("append").parquet(f"{folder}/{table}")


if __name__ == "__main__":
    url, user, password, folder, jars, above, *names = sys.argv[1:]
    load(url, user, password, folder, jars, int(above), names)
