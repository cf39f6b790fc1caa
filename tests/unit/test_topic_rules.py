"""The options that a job of topics may have, and the errors for others."""

from typing import Any

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.job_parsing import parse_job, resolve_datasets

KAFKA = {"type": "kafka", "connection": "events"}


def job(*datasets: dict[str, Any], source: dict[str, Any] = KAFKA, **options: Any) -> dict[str, Any]:
    return {"job": "events", "source": source, "destination": "/lake", "datasets": list(datasets), **options}


def test_a_topic_is_named_by_its_dataset_or_by_itself() -> None:
    spec = parse_job(job({"topic": "page views"}, {"urn": "clicks", "topic": "clicks-v2"}, {"urn": "plain"}))

    datasets = resolve_datasets(spec, None)

    assert {urn: dataset.topic for urn, dataset in datasets.items()} == {
        "page views": "page views",
        "clicks": "clicks-v2",
        "plain": "plain",
    }


def test_discovered_topics_take_the_defaults() -> None:
    spec = parse_job(job(source={**KAFKA, "include": ["page_*"]}, defaults={"kafka": {"value": {"format": "string"}}}))

    datasets = resolve_datasets(spec, ["page_a", "page_b"])

    assert datasets.keys() == {"page_a", "page_b"}
    assert datasets[DatasetUrn("page_b")].topic == "page_b"
    assert datasets[DatasetUrn("page_b")].kafka.value.format == "string"


@pytest.mark.parametrize(
    ("dataset", "field", "said"),
    [
        ({"topic": "a", "extract": "append_only"}, "datasets[0].extract", "a topic is a log"),
        ({"topic": "a", "watermark": {"column": "id"}}, "datasets[0].watermark", "are its offsets"),
        ({"table": "a"}, "datasets[0].table", "write topic"),
        ({"topic": "a", "columns": ["x"]}, "datasets[0].columns", "select"),
        (
            {"topic": "a", "partitions": {"kind": "static", "keys": ["x"], "column": "k"}},
            "datasets[0].partitions.kind",
            "event_time",
        ),
        (
            {"topic": "a", "kafka": {"bootstrap_with": "offset_lookback"}},
            "datasets[0].kafka.offset_lookback",
            "needs it",
        ),
        ({"topic": "a", "kafka": {"bootstrap_with": "timestamp"}}, "datasets[0].kafka.bootstrap_timestamp", "needs it"),
        ({"topic": "a", "kafka": {"offset_lookback": 5}}, "datasets[0].kafka.offset_lookback", "belongs to"),
        ({"topic": "a", "kafka": {"keep": ["key", "key"]}}, "datasets[0].kafka.keep", "twice"),
        ({"topic": "a", "kafka": {"value": {"subject": "s"}}}, "datasets[0].kafka.value.subject", "bytes has no such"),
        (
            {"topic": "a", "kafka": {"value": {"format": "string", "schema": "id int"}}},
            "datasets[0].kafka.value.schema",
            "string has no such",
        ),
        (
            {"topic": "a", "kafka": {"value": {"format": "protobuf"}}},
            "datasets[0].kafka.value.descriptor_file",
            "needs it",
        ),
        (
            {"topic": "a", "kafka": {"value": {"format": "avro", "framing": "none"}}},
            "datasets[0].kafka.value.schema",
            "by which schema",
        ),
        ({"topic": "a", "kafka": {"bootstrap_with": "earlyest"}}, "datasets[0].kafka.bootstrap_with", "earliest"),
    ],
)
def test_what_does_not_fit_a_topic_is_refused_by_name(dataset: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(RejectedError) as caught:
        parse_job(job(dataset))

    assert caught.value.field == field
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("source", "options", "field", "said"),
    [
        ({}, {"packer": {"container_capacity": 5}}, "packer.container_capacity", "bi_level has no such"),
        ({}, {"packer": {"type": "single_level", "containers_min": 2}}, "packer.containers_min", "single_level has no"),
        (
            {},
            {"packer": {"type": "topic_grouping", "capacity_strategy": "max"}},
            "packer.capacity_strategy",
            "produce_rate",
        ),
        (
            {},
            {"packer": {"type": "topic_grouping", "containers_min": 9}},
            "packer.containers_min",
            "split.max_multi_work_units, 8; found 9",
        ),
        (
            {},
            {"packer": {"type": "topic_grouping", "container_capacity": 0}},
            "packer.container_capacity",
            "more than 0",
        ),
        ({}, {"packer": {"type": "tri_level"}}, "packer.type", "topic_grouping"),
        ({"catch_up_sla_hours": 2}, {}, "source.catch_up_sla_hours", "size_estimator: produce_rate"),
        ({"produce_rate_scaling": 2, "size_estimator": "unit"}, {}, "source.produce_rate_scaling", "produce_rate"),
        ({"size_estimator": "produce_rate", "catch_up_sla_hours": 0}, {}, "source.catch_up_sla_hours", "more than 0"),
        ({"size_estimator": "average"}, {}, "source.size_estimator", "average_record_size"),
        ({"records_per_run": 0}, {}, "source.records_per_run", "Did you mean 'records_per_run_max'"),
        ({"records_per_run_max": 0}, {}, "source.records_per_run_max", "at least 1"),
        ({"new_data": {"wait_s_max": 60}}, {}, "source.new_data.wait_s_max", "Raise records_min"),
        ({"new_data": {"interval_s": 1}}, {}, "source.new_data.interval_s", "at least 5"),
    ],
)
def test_what_does_not_fit_the_source_or_the_packing_is_refused_by_name(
    source: dict[str, Any], options: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(RejectedError) as caught:
        parse_job(job({"topic": "a"}, source={**KAFKA, **source}, **options))

    assert caught.value.field == field
    assert said in str(caught.value)


def test_packing_by_rates_and_capacities_is_accepted_and_read_again() -> None:
    source = {**KAFKA, "size_estimator": "produce_rate", "catch_up_sla_hours": 0.5, "records_per_run_max": 10}
    packer = {"type": "topic_grouping", "capacity_strategy": "mean", "containers_min": 12}
    spec = parse_job(job({"topic": "a", "split": {"max_multi_work_units": 12}}, source=source, packer=packer))

    assert parse_job(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize("option", [{"topic": "a"}, {"kafka": {"keep": ["key"]}}, {"quality": {"lag_max": 5}}])
def test_a_table_has_no_options_of_topics(option: dict[str, Any]) -> None:
    with pytest.raises(RejectedError, match="JDBC source has no such option"):
        parse_job(job({"table": "a", **option}, source={"connection": "shop"}))


def test_an_unknown_kind_of_source_is_refused() -> None:
    with pytest.raises(RejectedError) as caught:
        parse_job(job({"topic": "a"}, source={"type": "kafak", "connection": "x"}))

    assert caught.value.field == "source.type"
    assert "kafka" in str(caught.value)
