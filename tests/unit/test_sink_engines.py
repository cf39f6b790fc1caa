"""Which of a sink's datasets have their rows from Spark: those of which Arrow can't make them."""

from collections.abc import Mapping
from typing import Any

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.sink.running import find_spark_needs, read_sink_datasets
from gobblin_assets.spec.job_parsing import parse_job

URN = "orders"
JSON = {"value": {"format": "json", "schema": "n bigint, at timestamp, s string"}}


def needs(dataset: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch, **sink: object) -> Mapping[str, str]:
    monkeypatch.setenv("GOBBLIN_KAFKA_SHOP_BOOTSTRAP_SERVERS", "nowhere:9092")
    job = parse_job({
        "job": "shop",
        "source": {"type": "kafka", "connection": "shop"},
        "destination": "/data/lake",
        "datasets": [{"topic": URN, **dataset}],
        "sink": sink,
    })  # fmt: skip
    return dict(find_spark_needs(job, read_sink_datasets(job)))


@pytest.mark.parametrize(
    "dataset",
    [
        {},
        {"kafka": {"value": {"format": "string"}, "key": {"format": "avro"}}},
        {"kafka": JSON},
        {"kafka": JSON, "writer": {"event_time": {"column": "at"}}},
        {"kafka": JSON, "writer": {"event_time": {"column": "n", "granularity": "month"}}},
    ],
)
def test_arrow_makes_the_rows_where_it_can(dataset: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert needs(dataset, monkeypatch) == {}


@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        ({"kafka": {"value": {"format": "avro"}}}, "its values are Avro"),
        ({"kafka": {"value": {"format": "json"}}}, "its values are JSON without a schema"),
        (
            {"kafka": {"value": {"format": "json", "schema": "m map<string,int>"}}},
            "its values are JSON of types that only Spark decodes",
        ),
        ({"kafka": {"key": {"format": "avro"}, "keep": ["key"]}}, "its keys are Avro"),
        (
            {"kafka": {"value": {"format": "protobuf", "descriptor_file": "a.desc", "message": "shop.View"}}},
            "its values are Protobuf",
        ),
        ({"converters": [{"drop": ["value"]}]}, "it has converters"),
        ({"quality": {"rows": [{"name": "r", "check": "true"}]}}, "it has quality.rows"),
        ({"kafka": JSON, "writer": {"partition_by": ["s"]}}, "it has writer.partition_by"),
        ({"kafka": JSON, "writer": {"time_column": "at", "time_pattern": "yyyy"}}, "it has writer.time_column"),
        ({"writer": {"event_time": {"column": "value", "json_path": "$.at"}}}, "its event times are inside of JSON"),
        ({"kafka": JSON, "writer": {"event_time": {"column": "s"}}}, "its event times are texts"),
        (
            {"kafka": JSON, "writer": {"event_time": {"column": "at", "pattern": "yyyy-MMM"}}},
            "the pattern of its directories is 'yyyy-MMM'",
        ),
    ],
)
def test_spark_makes_the_others(dataset: Mapping[str, Any], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert needs(dataset, monkeypatch) == {URN: why}


def test_what_spark_does_not_write_is_refused_by_its_field(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = {"kafka": JSON, "converters": [{"drop": ["s"]}]}

    with pytest.raises(RejectedError) as refused:
        needs(dataset, monkeypatch, format="json")

    assert refused.value.field == "sink.format"
    assert "since it has converters" in str(refused.value)


def test_topics_have_no_bases(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RejectedError, match=r"sink\.bases: .*current rows of a change log"):
        needs({}, monkeypatch, bases={"changes_min": 5})
