"""What a sink into tables asks of its job and of the environment, before anything is written or connected to."""

from collections.abc import Mapping
from typing import Any

import pytest

from gobblin_assets.destinations.tables.marks import LoadedTable
from gobblin_assets.destinations.tables.tables_place import TablesPlace
from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.sink.running import read_sink_datasets
from gobblin_assets.jobs.sink.sink_tables import choose_tables
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.job_parsing import parse_job

URL = "jdbc:postgresql://db.example.com/warehouse"
INTO = {"type": "postgres", "connection": "warehouse"}


def choose(
    *urns: str, sink: Mapping[str, Any] | None = None, writer: Mapping[str, Any] | None = None
) -> TablesPlace | None:
    job = parse_job({
        "job": "shop",
        "source": {"type": "kafka", "connection": "shop"},
        "destination": "/data/staging",
        "datasets": [{"topic": urn, "writer": writer or {}} for urn in urns],
        "sink": {"into": INTO, **(sink or {})},
    })  # fmt: skip
    return choose_tables(job, read_sink_datasets(job))


@pytest.fixture(autouse=True)
def url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOBBLIN_JDBC_WAREHOUSE_URL", URL)


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
        (["orders"], {"sink": {"into": {**INTO, "type": "mysql"}}}, r"sink\.into"),
        (["orders"], {"sink": {"into": {**INTO, "connection": "jdbc:postgresql://a:b@c"}}}, r"sink\.into\.connection"),
        (["orders"], {"sink": {"into": {**INTO, "connection": "elsewhere"}}}, "GOBBLIN_JDBC_ELSEWHERE_URL"),
    ],
    ids=str,
)
def test_what_can_t_be_loaded_is_refused(urns: list[str], options: Mapping[str, Any], field: str) -> None:
    with pytest.raises(RejectedError, match=f"^{field}: ") as raised:
        choose(*urns, **options)
    assert raised.value.hint


@pytest.mark.parametrize("url", ["jdbc:mariadb://u:secret@db/x", "postgresql://u:secret@db/x", "secret"])
def test_a_database_that_can_t_say_what_it_has_is_refused(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("GOBBLIN_JDBC_WAREHOUSE_URL", url)

    with pytest.raises(RejectedError, match=r"^GOBBLIN_JDBC_WAREHOUSE_URL: .* can say whether") as raised:
        choose("orders")
    assert "secret" not in str(raised.value)
