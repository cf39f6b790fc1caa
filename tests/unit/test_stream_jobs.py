"""The options that a job of Structured Streaming's queries may have, and what can't be done with it."""

from typing import Any

import pytest

from gobblin_assets import foreach_batch
from gobblin_assets.dagster.factory import build_gobblin_definitions
from gobblin_assets.errors import RejectedError
from gobblin_assets.spec.job_parsing import parse_job, resolve_datasets

INSTEAD = "foreach_batch"


def job(*datasets: dict[str, Any], **options: Any) -> dict[str, Any]:
    found = list(datasets) or [{"urn": "clicks"}]
    return {"job": "web", "source": {"type": "spark_stream"}, "destination": "/lake", "datasets": found, **options}


def test_windows_directories_and_checks_are_those_of_every_job() -> None:
    dataset = {
        "urn": "clicks",
        "partitions": {"kind": "daily", "start": "2026-01-01"},
        "writer": {"partition_by": ["country"]},
        "quality": {"rows": [{"name": "has_id", "check": "id IS NOT NULL", "on_failure": "err_file"}]},
        "converters": [{"drop": ["secret"]}],
        "schema_change": {"allow_dropped": True},
    }

    assert list(resolve_datasets(parse_job(job(dataset)), None)) == ["clicks"]


@pytest.mark.parametrize(
    ("dataset", "field", "said"),
    [
        ({"urn": "a", "table": "b"}, "datasets[0].table", "its urn"),
        ({"urn": "a", "extract": "append_only"}, "datasets[0].extract", "each batch is appended"),
        ({"urn": "a", "watermark": {"column": "id"}}, "datasets[0].watermark", "numbers of its batches"),
        ({"urn": "a", "primary_key": ["id"]}, "datasets[0].primary_key", "not compared"),
        ({"urn": "a", "columns": ["id"]}, "datasets[0].columns", "select"),
        ({"urn": "a", "casts": {"id": "x"}}, "datasets[0].casts", "cast"),
        ({"urn": "a", "where": "id > 1"}, "datasets[0].where", "where"),
        ({"urn": "a", "split": {"max_partitions": 2}}, "datasets[0].split", "own partitions"),
        ({"urn": "a", "topic": "b"}, "datasets[0].topic", "Take it out"),
        ({"urn": "a", "quality": {"lag_max": 1}}, "datasets[0].quality.lag_max", "Take it out"),
        (
            {"urn": "a", "partitions": {"kind": "static", "keys": ["x"], "column": "k"}},
            "datasets[0].partitions.kind",
            "partition_by",
        ),
        ({"description": "b"}, "datasets[0].urn", "Write it"),
    ],
)
def test_options_of_other_sources_are_refused(dataset: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(RejectedError) as caught:
        parse_job(job(dataset))

    assert caught.value.field == field
    assert said in str(caught.value)


@pytest.mark.parametrize("option", [{"connection": "shop"}, {"include": ["a*"]}, {"exclude": ["a*"]}])
def test_a_query_has_no_connection_and_no_patterns(option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(RejectedError) as caught:
        parse_job(job(source={"type": "spark_stream", **option}))

    assert caught.value.field == f"source.{name}"


def test_its_datasets_are_assets_without_a_connection() -> None:
    definitions = build_gobblin_definitions(
        job({"urn": "clicks", "partitions": {"kind": "daily", "start": "2026-01-01"}})
    )

    (asset,) = definitions.assets or ()
    (spec,) = asset.specs  # type: ignore[union-attr]  # one definition of the job's assets
    assert INSTEAD in (spec.description or "")
    assert not any("connection" in key for key in asset.required_resource_keys)  # type: ignore[union-attr]  # the same


@pytest.mark.parametrize(
    ("options", "urn", "field"),
    [
        (job(), "views", "datasets"),
        (job(source={"connection": "shop"}), "clicks", "source.type"),
    ],
)
def test_a_function_is_made_only_for_a_dataset_of_a_query(options: dict[str, Any], urn: str, field: str) -> None:
    with pytest.raises(RejectedError) as caught:
        foreach_batch(options, urn)

    assert caught.value.field == field
