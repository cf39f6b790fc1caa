"""Old and new files of a dataset, read together: every value survives, or nothing is written (docs/TYPES.md)."""

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.extract import Mode
from gobblin_assets.rows.dataset_reader import read_dataset
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from tests.support.ingestion import Ingestion
from tests.support.postgres import Database
from tests.support.publishing import Publisher

pytestmark = pytest.mark.turns(of=8)

# The values of each type that are hardest to keep, as Spark's SQL writes them and as Python has them.
VALUES: dict[str, list[tuple[str, Any]]] = {
    "tinyint": [("-128", -128), ("127", 127)],
    "smallint": [("-32768", -32768), ("32767", 32767)],
    "int": [("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)],
    "bigint": [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)],
    "float": [("'0.1'", 0.10000000149011612), ("'3.4028235E38'", 3.4028234663852886e38)],
    "double": [("'0.1'", 0.1), ("'5E-324'", 5e-324)],
    "decimal(4,1)": [("'-999.9'", Decimal("-999.9")), ("'0.1'", Decimal("0.1"))],
    "decimal(10,4)": [("'999999.9999'", Decimal("999999.9999")), ("'0.0001'", Decimal("0.0001"))],
    "decimal(38,19)": [(f"'{'9' * 19}.{'9' * 19}'", Decimal("9" * 19 + "." + "9" * 19)), ("'0'", Decimal(0))],
    "date": [("'0001-01-01'", dt.datetime(1, 1, 1)), ("'1582-10-04'", dt.datetime(1582, 10, 4))],  # noqa: DTZ001  a wall clock's
    "timestamp_ntz": [
        ("'0001-01-01 00:00:00.000001'", dt.datetime(1, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001  a wall clock's
        ("'9999-12-31 23:59:59.999999'", dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001  a wall clock's
    ],
}
TOGETHER = [
    ("tinyint", "smallint", "smallint"),
    ("tinyint", "bigint", "bigint"),
    ("tinyint", "float", "float"),
    ("smallint", "double", "double"),
    ("int", "bigint", "bigint"),
    ("int", "float", "double"),
    ("int", "double", "double"),
    ("int", "decimal(4,1)", "decimal(11,1)"),
    ("bigint", "decimal(10,4)", "decimal(23,4)"),
    ("bigint", "decimal(38,19)", "decimal(38,19)"),
    ("float", "double", "double"),
    ("decimal(4,1)", "decimal(10,4)", "decimal(10,4)"),
    ("decimal(10,4)", "decimal(38,19)", "decimal(38,19)"),
    ("date", "timestamp_ntz", "timestamp_ntz"),
]
# How a value may be wrapped, and Python's form of the result.
WRAPPED: dict[str, tuple[str, Any]] = {
    "plain": ("{0}", lambda value: value),
    "field": ("named_struct('f', {0})", lambda value: value[0]),
    "element": ("array({0}, NULL)", lambda value: value[0]),
    "value": ("map('k', array(named_struct('f', {0})))", lambda value: value["k"][0][0]),
    "key": ("map({0}, 'v')", lambda value: next(iter(value))),
}


@pytest.fixture
def publisher(engine: Engine, tmp_path: Path) -> Publisher:
    return Publisher(engine, tmp_path / "lake")


@pytest.mark.rotating(of=3)
@pytest.mark.core
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["narrow first", "wide first"])
def test_every_value_of_old_and_new_files_survives(
    spark: SparkSession, publisher: Publisher, order: tuple[int, int]
) -> None:
    cases = [(*each, *wrapped) for each in TOGETHER for wrapped in WRAPPED.values()]
    for side in order:
        rows = [
            ", ".join(
                f"{text.format(f'CAST({VALUES[case[side]][row][0]} AS {case[side]})')} AS c{number}"
                for number, case in enumerate(cases)
                for text in [case[3]]
            )
            for row in (0, 1)
        ]
        publisher.publish(spark.sql(" UNION ALL ".join(f"SELECT {row}" for row in rows)).coalesce(1), "public.t")

    found = read_dataset(spark, "public.t", job="shop", database=publisher.engine)

    read = found.collect()
    for number, (narrow, wide, joined, text, unwrap) in enumerate(cases):
        shown = found.schema[number].dataType.simpleString()
        assert shown.count(joined) == 1, (narrow, wide, text, shown)
        values = Counter(unwrap(row[number]) for row in read)
        assert values == Counter(value for kind in (narrow, wide) for _sql, value in VALUES[kind]), (narrow, wide, text)


@pytest.fixture
def shop(fresh_database: Database) -> Database:
    with fresh_database.connect() as connection:
        connection.execute("CREATE TABLE prices (id int, day date, price numeric(10, 2))")
        connection.execute("INSERT INTO prices VALUES (1, '2024-01-05', 19.99)")
    return fresh_database


@pytest.fixture
def ingestion(spark: SparkSession, database_url: str, shop: Database, tmp_path: Path) -> Iterator[Ingestion]:
    connection = JdbcConnection(url=shop.jdbc_url, user=shop.user, password=shop.password, name="shop")
    made = Ingestion(spark, database_url, connection, str(tmp_path), [prices()])
    yield made
    made.close()


def prices(**options: Any) -> dict[str, Any]:
    return {"urn": "public.prices", "extract": "append_only", "watermark": {"column": "id"}, **options}


def alter(shop: Database, *statements: str) -> None:
    with shop.connect() as connection:
        for statement in statements:
            connection.execute(statement.encode())


ANYTHING = {"allow_dropped": True, "allow_retyped": True}


def test_a_column_that_comes_back_with_another_type_is_compared_with_all_active_files(
    ingestion: Ingestion, shop: Database
) -> None:
    ingestion.datasets = [prices(schema_change=ANYTHING)]
    assert not ingestion.run(mode=Mode.APPEND).failed
    alter(shop, "ALTER TABLE prices DROP COLUMN price", "INSERT INTO prices VALUES (2, '2024-01-06')")
    assert not ingestion.run(mode=Mode.APPEND).failed
    alter(shop, "ALTER TABLE prices ADD COLUMN price float8", "INSERT INTO prices VALUES (3, '2024-01-07', 7)")

    (refused,) = ingestion.run(mode=Mode.APPEND).failed

    assert refused.error is not None
    assert "'price' is double now, its published files hold decimal(10,2)" in refused.error
    assert "a decimal with at least 8 digits before the point and 2 behind it" in refused.error
    assert ingestion.rows("public.prices", "id", "price") == Counter({(1, Decimal("19.99")): 1, (2, None): 1})
    assert not [path for path in Path(ingestion.root).rglob("*.parquet") if ".staging" in str(path)]
    # A widening is allowed. A narrowing needs allow_retyped, and the dataset stays as wide as it was.
    alter(shop, "ALTER TABLE prices ALTER COLUMN price TYPE numeric(14, 3)")
    ingestion.datasets = [prices()]
    assert not ingestion.run(mode=Mode.APPEND).failed
    alter(shop, "ALTER TABLE prices ALTER COLUMN price TYPE int", "INSERT INTO prices VALUES (4, '2024-01-08', 8)")
    (refused,) = ingestion.run(mode=Mode.APPEND).failed
    assert "allow_retyped: true}: the dataset then reads as decimal(14,3)" in str(refused.error)
    ingestion.datasets = [prices(schema_change={"allow_retyped": True})]
    assert not ingestion.run(mode=Mode.APPEND).failed
    numbers = {1: "19.990", 2: None, 3: "7.000", 4: "8.000"}
    assert ingestion.rows("public.prices", "id", "price") == Counter(
        (number, None if text is None else Decimal(text)) for number, text in numbers.items()
    )
    assert any("public.prices.price was numeric(14,3) and is integer now" in line for line in ingestion.lines)


def test_a_refresh_changes_types_only_where_no_other_partition_has_files(ingestion: Ingestion, shop: Database) -> None:
    daily = prices(watermark={"column": "day"}, partitions={"kind": "monthly", "start": "2024-01-01"})
    ingestion.datasets = [daily]
    alter(shop, "INSERT INTO prices VALUES (2, '2024-02-05', 1)")
    january, february = {"public.prices": ["2024-01-01"]}, {"public.prices": ["2024-02-01"]}
    assert not ingestion.run(january).failed
    alter(shop, "ALTER TABLE prices ALTER COLUMN price TYPE text")
    # Its own files are the only ones.
    assert not ingestion.run(january, mode=Mode.REFRESH).failed
    assert not ingestion.run(february).failed
    alter(shop, "ALTER TABLE prices ALTER COLUMN price TYPE numeric(10, 2) USING price::numeric")
    (refused,) = ingestion.run(january, mode=Mode.REFRESH).failed
    assert "'price' is decimal(10,2) now, its published files hold string" in str(refused.error)
    assert ingestion.rows("public.prices", "id", "price") == Counter({(1, "19.99"): 1, (2, "1.00"): 1})


def test_what_an_older_release_left_without_a_common_type_is_readable_by_partitions(
    spark: SparkSession, publisher: Publisher
) -> None:
    publisher.publish(spark.sql("SELECT 1 AS id, 'seven' AS v"), "public.t", partition="old")
    publisher.publish(spark.sql("SELECT 2 AS id, 7 AS v"), "public.t", partition="new")

    def read(partitions: list[str] | None = None) -> list[Any]:
        found = read_dataset(spark, "public.t", job="shop", database=publisher.engine, partitions=partitions)
        return [tuple(row) for row in found.collect()]

    with pytest.raises(RejectedError, match="files hold 'v' as int and as string") as refused:
        read()
    assert refused.value.field == "partitions"
    assert (read(["old"]), read(["new"])) == ([(1, "seven")], [(2, 7)])
