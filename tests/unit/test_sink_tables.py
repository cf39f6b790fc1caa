"""What a sink into tables asks of its job and of the environment, before anything is written or connected to."""

from collections.abc import Mapping
from typing import Any

import pytest

from gobblin_assets.destinations.iceberg.catalog_address import read_catalog_address
from gobblin_assets.destinations.iceberg.iceberg_place import IcebergPlace
from gobblin_assets.destinations.postgres.tables_place import TablesPlace
from gobblin_assets.destinations.rows_place import RowsPlace
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.s3.s3_settings import S3Settings
from gobblin_assets.jobs.rows_places import rows_place_of
from gobblin_assets.jobs.sink.running import read_sink_datasets
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.job_parsing import parse_job

URL = "jdbc:postgresql://db.example.com/warehouse"
INTO = {"type": "postgres", "connection": "warehouse"}
ICEBERG = {"type": "iceberg", "connection": "lakehouse", "namespace": "lake.shop"}


def choose(
    *urns: str, sink: Mapping[str, Any] | None = None, writer: Mapping[str, Any] | None = None
) -> RowsPlace | None:
    job = parse_job({
        "job": "shop",
        "source": {"type": "kafka", "connection": "shop"},
        "destination": "/data/staging",
        "datasets": [{"topic": urn, "writer": writer or {}} for urn in urns],
        "sink": {"into": INTO, **(sink or {})},
    })  # fmt: skip
    return rows_place_of(job, read_sink_datasets(job))


@pytest.fixture(autouse=True)
def url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOBBLIN_JDBC_WAREHOUSE_URL", URL)
    monkeypatch.setenv("GOBBLIN_ICEBERG_LAKEHOUSE_URL", "postgresql://db.example.com/catalog")
    monkeypatch.setenv("GOBBLIN_ICEBERG_LAKEHOUSE_WAREHOUSE", "file:///data/warehouse")


def test_each_dataset_has_the_table_of_its_name() -> None:
    place = choose("orders", "shop.Order-items", sink={"into": {**INTO, "tables_schema": "lake"}})

    assert place == TablesPlace(
        "warehouse",
        {
            DatasetUrn("orders"): LoadedTable("lake", "orders"),
            DatasetUrn("shop.Order-items"): LoadedTable("lake", "shop_Order_items"),
        },
        "gobblin_marks",
    )


def test_each_dataset_has_the_table_of_iceberg_of_its_name() -> None:
    place = choose("orders", "shop.Order-items", sink={"into": ICEBERG})

    assert place == IcebergPlace(
        "lakehouse",
        {
            DatasetUrn("orders"): LoadedTable("lake.shop", "orders"),
            DatasetUrn("shop.Order-items"): LoadedTable("lake.shop", "shop_Order_items"),
        },
        "lake.shop",
    )


def test_a_sink_that_says_nothing_of_tables_has_none() -> None:
    assert choose("orders", sink={"into": None}) is None


@pytest.mark.parametrize(
    ("urns", "options", "field"),
    [
        (["orders"], {"sink": {"format": "json"}}, r"sink\.format"),
        (["orders"], {"writer": {"partition_by": ["day"]}}, r"datasets\[orders\]\.writer\.partition_by"),
        (
            ["orders"],
            {"writer": {"event_time": {"column": "at"}}},
            r"datasets\[orders\]\.writer\.event_time",
        ),
        (["a.b", "a-b"], {}, r"datasets\[a-b\]\.urn"),
        (["x" * 64], {}, r"datasets\[x+\]\.urn"),
        (["orders"], {"sink": {"into": {**INTO, "type": "mysql"}}}, r"sink\.into(\.type)?"),
        (["orders"], {"sink": {"into": {**INTO, "connection": "jdbc:postgresql://a:b@c"}}}, r"sink\.into\.connection"),
        (["orders"], {"sink": {"into": {**INTO, "connection": "elsewhere"}}}, "GOBBLIN_JDBC_ELSEWHERE_URL"),
        (["orders"], {"sink": {"into": {**ICEBERG, "connection": "other"}}}, "GOBBLIN_ICEBERG_OTHER_URL"),
        (["orders"], {"sink": {"into": {**ICEBERG, "namespace": "a/b"}}}, r"sink\.into\.namespace"),
        (["orders"], {"sink": {"into": {**ICEBERG, "tables_schema": "a"}}}, r"sink\.into\.tables_schema"),
        (["orders"], {"sink": {"into": ICEBERG, "format": "csv"}}, r"sink\.format"),
        (["a.b", "a-b"], {"sink": {"into": ICEBERG}}, r"datasets\[a-b\]\.urn"),
    ],
    ids=str,
)
def test_what_can_t_be_loaded_is_refused(urns: list[str], options: Mapping[str, Any], field: str) -> None:
    with pytest.raises(RejectedError, match=f"^{field}: ") as raised:
        choose(*urns, **options)
    assert raised.value.hint


@pytest.mark.parametrize("url", ["jdbc:mariadb://u:secret@db/x", "mysql://u:secret@db/x", "secret"])
def test_a_database_that_can_t_say_what_it_has_is_refused(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("GOBBLIN_JDBC_WAREHOUSE_URL", url)

    with pytest.raises(RejectedError, match=r"^GOBBLIN_JDBC_WAREHOUSE_URL: .* can say whether") as raised:
        choose("orders")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("URL", "https://catalog.example.com/secret"),
        ("URL", "sqlite:////tmp/secret.db"),
        ("URL", "postgresql://u:secret@db/x"),
        ("WAREHOUSE", ""),
        ("WAREHOUSE", "s3:///secret"),
        ("WAREHOUSE", "gs://secret/warehouse"),
        ("WAREHOUSE", "secret/warehouse"),
        ("WAREHOUSE", "file://secret/warehouse"),
    ],
)
def test_a_catalog_that_can_t_be_trusted_is_refused(monkeypatch: pytest.MonkeyPatch, part: str, value: str) -> None:
    monkeypatch.setenv(f"GOBBLIN_ICEBERG_LAKEHOUSE_{part}", value)

    with pytest.raises(RejectedError, match=rf"^GOBBLIN_ICEBERG_LAKEHOUSE_{part}: expected ") as raised:
        choose("orders", sink={"into": ICEBERG})

    assert "secret" not in f"{raised.value} {raised.value.hint}"


def test_a_catalog_has_the_name_of_its_connection_unless_it_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOBBLIN_ICEBERG_LAKEHOUSE_PASSWORD", "secret")
    found = read_catalog_address("lakehouse")
    assert (found.catalog, found.url) == ("lakehouse", "jdbc:postgresql://db.example.com/catalog")
    assert (found.warehouse, found.store) == ("file:///data/warehouse", None)
    assert "secret" not in repr(found)

    monkeypatch.setenv("GOBBLIN_ICEBERG_LAKEHOUSE_CATALOG", "prod")
    assert read_catalog_address("lakehouse").catalog == "prod"


def test_a_warehouse_in_a_bucket_is_reached_by_the_variables_of_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOBBLIN_ICEBERG_LAKEHOUSE_WAREHOUSE", "s3://lake/tables/")
    monkeypatch.setenv("GOBBLIN_S3_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("GOBBLIN_S3_SECRET_ACCESS_KEY", "secret")

    found = read_catalog_address("lakehouse")

    assert (found.warehouse, found.store) == ("s3://lake/tables", S3Settings(None, None, "key", "secret"))
    assert "secret" not in repr(found)

    monkeypatch.setenv("GOBBLIN_S3_CA_FILE", __file__)
    with pytest.raises(RejectedError, match=r"^GOBBLIN_S3_CA_FILE: .* trusts the machine's"):
        read_catalog_address("lakehouse")
