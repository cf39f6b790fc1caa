"""Datasets without a row to publish: their columns, and the errors of datasets beside them."""

from collections import Counter

import pytest
from sqlalchemy import text

from gobblin_assets.model.extract import Mode
from gobblin_assets.model.state import DatasetOutcome
from tests.support.ingestion import Ingestion
from tests.support.postgres import Database
from tests.support.shop import CUSTOMERS, WHOLE_ORDERS, ingestion, shop

pytestmark = pytest.mark.turns(of=4)

__all__ = ["ingestion", "shop"]


def test_empty_tables_are_read_as_empty_frames_of_their_columns(ingestion: Ingestion, shop: Database) -> None:
    with shop.connect() as connection:
        connection.execute("TRUNCATE orders, customers")
    kept = {"converters": [{"drop": ["note"]}], "writer": {"partition_by": ["id"]}}
    ingestion.datasets = [{**WHOLE_ORDERS, **kept}, CUSTOMERS]

    assert [d.error for d in ingestion.run().datasets] == [None, None], ingestion.lines
    orders = ingestion.read("public.orders")
    assert orders.schema.simpleString() == "struct<id:bigint,at:timestamp,amount:decimal(12,2)>"
    assert orders.collect() == []
    assert ingestion.read("public.customers").schema.simpleString() == "struct<id:int,name:string>"
    assert ingestion.rows("public.customers") == Counter()

    # Columns without rows bind nothing; a table that is still empty does not publish them again.
    with shop.connect() as connection:
        connection.execute("ALTER TABLE orders ALTER COLUMN amount TYPE text USING ''")
    assert [d.error for d in ingestion.run(mode=Mode.APPEND).datasets] == [None, None], ingestion.lines
    assert ingestion.read("public.orders").schema["amount"].dataType.simpleString() == "string"
    attempts = _count_attempts(ingestion)
    assert [d.error for d in ingestion.run({"public.orders": [None]}).datasets] == [None]
    assert _count_attempts(ingestion) == attempts
    with shop.connect() as connection:
        connection.execute("INSERT INTO orders VALUES (1, '2024-01-01 00:00Z', 'much', 'n')")
        connection.execute("INSERT INTO customers VALUES (1, 'c1')")
    assert [d.error for d in ingestion.run().datasets] == [None, None], ingestion.lines
    assert ingestion.rows("public.orders", "id", "amount") == Counter([(1, "much")])
    assert ingestion.rows("public.customers") == Counter([(1, "c1")])


def test_a_refresh_that_empties_a_table_leaves_its_new_columns(ingestion: Ingestion, shop: Database) -> None:
    ingestion.datasets = [WHOLE_ORDERS, CUSTOMERS]
    assert [d.error for d in ingestion.run().datasets] == [None, None], ingestion.lines
    with shop.connect() as connection:
        connection.execute("TRUNCATE orders, customers")
        connection.execute("ALTER TABLE orders DROP COLUMN note")
        connection.execute("ALTER TABLE customers ADD COLUMN city text")
    ingestion.datasets = [{**each, "schema_change": {"allow_dropped": True}} for each in ingestion.datasets]

    assert [d.error for d in ingestion.run(mode=Mode.REFRESH).datasets] == [None, None], ingestion.lines

    assert ingestion.read("public.orders").columns == ["id", "at", "amount"]
    assert ingestion.rows("public.orders") == Counter()
    assert ingestion.read("public.customers").columns == ["id", "name", "city"]
    assert ingestion.rows("public.customers") == Counter()


def test_a_task_that_failed_among_published_ones_does_not_say_that_nothing_was_published(
    ingestion: Ingestion, shop: Database
) -> None:
    with shop.connect() as connection:
        connection.execute("ANALYZE orders")
    policy = {"name": "no_last", "check": "id <> 2199", "on_failure": "fail"}
    split = {"work_unit_rows": 1000, "max_partitions": 3, "task_rows_min": 1}
    ingestion.datasets = [{**WHOLE_ORDERS, "split": split, "quality": {"rows": [policy]}}]
    ingestion.options = {"commit_policy": "successful"}

    (report,) = ingestion.run().datasets

    assert report.outcome is DatasetOutcome.PARTIAL, ingestion.lines
    assert report.publication is not None
    assert 0 < report.publication.row_count < 2199
    said = "\n".join([report.error or "", *ingestion.lines]).lower()
    assert "no_last" in said
    assert "nothing was published" not in said
    assert "nothing that its task read was published" in said


def _count_attempts(ingestion: Ingestion) -> object:
    with ingestion.engine.connect() as connection:
        return connection.execute(text("SELECT count(*) FROM gobblin.attempt")).scalar()
