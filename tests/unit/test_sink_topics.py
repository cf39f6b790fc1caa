"""What a sink into topics asks of its job and of the environment, before anything is written or connected to."""

from collections.abc import Mapping
from typing import Any

import pytest

from gobblin_assets.destinations.kafka.topic_batches import LoadedTopic
from gobblin_assets.destinations.kafka.topics_place import TopicsPlace
from gobblin_assets.destinations.rows_place import RowsPlace
from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.rows_places import rows_place_of
from gobblin_assets.jobs.sink.running import read_sink_datasets
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.job_parsing import parse_job

INTO = {"type": "kafka", "connection": "out"}


def choose(
    *urns: str, sink: Mapping[str, Any] | None = None, writer: Mapping[str, Any] | None = None, source: str = "shop"
) -> RowsPlace | None:
    job = parse_job({
        "job": "shop",
        "source": {"type": "kafka", "connection": source},
        "destination": "/data/staging",
        "datasets": [{"urn": urn, "topic": "orders", "writer": writer or {}} for urn in urns],
        "sink": {"into": INTO, **(sink or {})},
    })  # fmt: skip
    return rows_place_of(job, read_sink_datasets(job))


@pytest.fixture(autouse=True)
def brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOBBLIN_KAFKA_OUT_BOOTSTRAP_SERVERS", "b1:9092,b2:9092")
    monkeypatch.setenv("GOBBLIN_KAFKA_SHOP_BOOTSTRAP_SERVERS", "s1:9092")
    monkeypatch.setenv("GOBBLIN_KAFKA_TWIN_BOOTSTRAP_SERVERS", "b2:9092")


def test_each_dataset_has_the_topic_of_the_template() -> None:
    into = {**INTO, "topic": "clean.{dataset}", "key": ["id"], "partitions": 6, "replication_factor": 3}

    place = choose("orders", "shop/Items", sink={"into": into})

    assert place == TopicsPlace(
        "out",
        {
            DatasetUrn("orders"): LoadedTopic("clean.orders", ("id",), 6, 3),
            DatasetUrn("shop/Items"): LoadedTopic("clean.shop_Items", ("id",), 6, 3),
        },
        "gobblin_lane",
    )


def test_a_topic_of_another_cluster_may_have_the_source_s_name() -> None:
    assert choose("orders") == TopicsPlace("out", {DatasetUrn("orders"): LoadedTopic("orders")}, "gobblin_lane")


@pytest.mark.parametrize(
    ("urns", "options", "field"),
    [
        (["a"], {"sink": {"format": "json"}}, r"sink\.format"),
        (["a"], {"writer": {"partition_by": ["day"]}}, r"datasets\[a\]\.writer\.partition_by"),
        (["a/b", "a b"], {}, r"sink\.into\.topic"),
        (["a"], {"sink": {"into": {**INTO, "topic": "out {dataset}"}}}, r"sink\.into\.topic"),
        (["a", "b"], {"sink": {"into": {**INTO, "topic": "out"}}}, r"sink\.into\.topic"),
        (["x" * 250], {}, r"datasets\[x+\]\.urn"),
        (["gobblin_lane"], {}, r"sink\.into\.marks_topic"),
        (["a"], {"sink": {"into": {**INTO, "key": ["n", "n"]}}}, r"sink\.into\.key"),
        (["a"], {"sink": {"into": {**INTO, "type": "rabbit"}}}, r"sink\.into\.type"),
        (["a"], {"sink": {"into": {"connection": "out"}}}, r"sink\.into\.type"),
        (["a"], {"sink": {"into": {**INTO, "tables_schema": "x"}}}, r"sink\.into\.tables_schema"),
        (["a"], {"sink": {"into": {**INTO, "connection": "elsewhere"}}}, "GOBBLIN_KAFKA_ELSEWHERE_BOOTSTRAP_SERVERS"),
        (["orders"], {"source": "out"}, r"sink\.into\.topic"),
        (["orders"], {"source": "twin"}, r"sink\.into\.topic"),
        (["a"], {"source": "twin", "sink": {"into": {**INTO, "marks_topic": "orders"}}}, r"sink\.into\.topic"),
    ],
    ids=str,
)
def test_what_can_t_be_loaded_is_refused(urns: list[str], options: Mapping[str, Any], field: str) -> None:
    with pytest.raises(RejectedError, match=f"^{field}: ") as raised:
        choose(*urns, **options)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("BOOTSTRAP_SERVERS", "https://u:secret@b1", "bootstrap_servers"),
        ("SECURITY_PROTOCOL", "SASL_SSL", "sasl_mechanism"),
        ("TIMEOUT_S", "soon", "GOBBLIN_KAFKA_OUT_TIMEOUT_S"),
    ],
)
def test_a_connection_that_can_t_be_right_is_refused(
    monkeypatch: pytest.MonkeyPatch, field: str, value: str, named: str
) -> None:
    monkeypatch.setenv(f"GOBBLIN_KAFKA_OUT_{field}", value)

    with pytest.raises(RejectedError, match=named) as raised:
        choose("orders")
    assert "secret" not in str(raised.value)
