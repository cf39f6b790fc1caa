"""A shop in a test's own Postgres: 2,200 orders, ten of each moment, and 20 customers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from gobblin_assets.sources.jdbc.connection import JdbcConnection
from tests.support.ingestion import Ingestion
from tests.support.postgres import Database

ORDERS: dict[str, Any] = {
    "urn": "public.orders",
    "extract": "append_only",
    "watermark": {"column": "at", "commit_lag_s": 0},
    "primary_key": ["id"],
    "partitions": {"kind": "monthly", "start": "2024-01-01"},
    "split": {"work_unit_rows": 40, "max_partitions": 3},
}
CUSTOMERS: dict[str, Any] = {"urn": "public.customers"}
WHOLE_ORDERS = {**ORDERS, "partitions": {}}


@pytest.fixture
def shop(fresh_database: Database) -> Database:
    with fresh_database.connect() as connection:
        connection.execute("""
            CREATE TABLE orders (id bigint PRIMARY KEY, at timestamptz, amount numeric(12, 2), note text)
        """)
        connection.execute("CREATE TABLE customers (id int PRIMARY KEY, name text)")
        connection.execute("INSERT INTO customers SELECT n, 'c' || n FROM generate_series(1, 20) n")
        # Ten rows share each moment, so that every bound falls between rows of one time.
        connection.execute("""
            INSERT INTO orders
            SELECT n, timestamptz '2024-01-01 00:00Z' + (n / 10) * interval '6 hours', n * 1.5, 'n' || n
              FROM generate_series(0, 2199) n
        """)
    return fresh_database


@pytest.fixture
def ingestion(spark: SparkSession, database_url: str, shop: Database, tmp_path: Path) -> Iterator[Ingestion]:
    root = tmp_path / "lake house"
    root.mkdir()
    made = Ingestion(spark, database_url, connection_of(shop), str(root), [ORDERS, CUSTOMERS])
    yield made
    made.close()


def connection_of(shop: Database) -> JdbcConnection:
    return JdbcConnection(url=shop.jdbc_url, user=shop.user, password=shop.password, name="shop")
