"""A sink's directories by event time are those that Spark gives an ingestion's rows."""

import datetime as dt
import random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from gobblin_assets.jobs.sink.event_directories import EventDirectories
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.event_time import add_event_time
from gobblin_assets.rows.time_faults import DAY_MICROS, HIGH_MICROS, LOW_MICROS, YEAR_1_MICROS, YEAR_10000_MICROS
from gobblin_assets.spec.event_time_spec import EventTimeSpec

NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
SPARK_TYPES = {
    pa.timestamp("us", tz="UTC"): "timestamp_micros(n)",
    pa.timestamp("us"): "CAST(timestamp_micros(n) AS timestamp_ntz)",
    pa.int64(): "n",
    pa.date32(): f"date_from_unix_date(CAST((n - pmod(n, {DAY_MICROS})) div {DAY_MICROS} AS int))",
}


def _numbers() -> list[int | None]:
    """Around the ends of the calendar, and around the changes of clocks."""
    chance = random.Random(5)
    edges = [LOW_MICROS, HIGH_MICROS, YEAR_1_MICROS, YEAR_10000_MICROS, 0]
    found = [edge + off for edge in edges for off in (-DAY_MICROS, -3_600_000_000, -1, 0, 1, 3_600_000_000, DAY_MICROS)]
    for day in ("2026-03-29", "2026-10-25", "1916-05-01", "2018-11-04", "1893-04-01", "2011-12-30", "1582-10-10"):
        start = int(dt.datetime.fromisoformat(f"{day}T00:00Z").timestamp()) * 1_000_000
        found += [start + minutes * 60_000_000 + 1 for minutes in range(-120, 1600, 37)]
    found += [chance.randint(YEAR_1_MICROS, YEAR_10000_MICROS) for _each in range(200)]
    found += [chance.randint(0, 1_900_000_000_000_000) for _each in range(200)]
    return [None, *found]


@pytest.mark.rotating(of=3)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "Asia/Kathmandu"])
@pytest.mark.parametrize("kind", list(SPARK_TYPES), ids=str)
def test_directories_are_spark_s(spark: SparkSession, kind: pa.DataType, zone: str) -> None:
    numbers = _numbers()
    granularity = "minute" if zone == "Europe/Berlin" else "hour"
    for rule in ("directory", "accept"):
        options: dict[str, Any] = {"on_missing": "directory", "on_future": rule, "unit": "us"}
        if zone == "Asia/Kathmandu":
            # Finer than the granularity.
            options["pattern"] = "yyyy-MM-dd-HH-mm-ss"
        spec = EventTimeSpec.model_validate({"column": "at", "zone": zone, "granularity": granularity} | options)
        frame = spark.createDataFrame(pa.table({"n": pa.array(numbers, pa.int64())}))
        frame = frame.select("n", f.expr(SPARK_TYPES[kind]).alias("at"))
        directories = add_event_time(frame, spec, dataset="d", now=NOW).select("n", "event_time").toArrow()
        expected = {row["n"]: f"event_time={row['event_time']}" for row in directories.to_pylist()}
        counts = pa.array(numbers, pa.int64())
        if pa.types.is_date(kind):
            days = [None if each is None else each // DAY_MICROS for each in numbers]
            values = pa.array(days, pa.int32()).view(kind)
        else:
            values = counts.view(kind)
        schema = pa.schema([("n", pa.int64()), ("at", kind)])
        place = EventDirectories(spec, {Role.DATA: schema}, dataset="d", now=lambda: NOW)
        found = {
            row["n"]: each.partition_path
            for each in place(Role.DATA, pa.record_batch([counts, values], schema=schema))
            for row in each.rows.select(["n"]).to_pylist()
        }
        wrong = {n: (path, expected[n]) for n, path in found.items() if path != expected[n]}
        assert wrong == {}
        assert len(found) == len(set(numbers))
