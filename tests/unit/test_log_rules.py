"""Options that change logs do not have are refused by their names, when the job is read."""

from typing import Any

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.spec.job_parsing import parse_job, resolve_datasets

STATIC: dict[str, Any] = {"kind": "static", "keys": ["a", "b"]}


def refusal_of(dataset: dict[str, Any], job: dict[str, Any], source: dict[str, Any]) -> str:
    with pytest.raises(RejectedError) as found:
        resolve_datasets(
            parse_job(
                {
                    "job": "shop",
                    "source": {"type": "postgres_log", "connection": "shop", "publication": "lake", **source},
                    "destination": "/lake",
                    "datasets": [{"urn": "public.orders", **dataset}],
                    **job,
                }
            ),
            None,
        )
    assert found.value.hint, found.value
    return str(found.value)


@pytest.mark.parametrize(
    ("field", "dataset"),
    [
        ("extract", {"extract": "append_only"}),
        ("watermark", {"watermark": {"column": "at"}}),
        ("columns", {"columns": ["id"]}),
        ("where", {"where": "id > 1"}),
        ("primary_key", {"primary_key": ["id"]}),
        ("split", {"split": {"work_unit_rows": 5}}),
        ("writer.partition_by", {"writer": {"partition_by": ["id"]}}),
        ("writer.time_column", {"writer": {"time_column": "at"}}),
        ("quality", {"quality": {"rows": [{"name": "positive", "check": "id > 0"}]}}),
        ("partitions.kind", {"partitions": STATIC}),
    ],
)
def test_of_datasets(field: str, dataset: dict[str, Any]) -> None:
    assert f"datasets[0].{field}: " in refusal_of(dataset, {}, {})


@pytest.mark.parametrize(
    ("field", "job", "source"),
    [
        ("source.records_per_run_max", {}, {"records_per_run_max": 5}),
        ("source.new_data", {}, {"new_data": {"interval_s": 5}}),
        ("source.slot", {}, {"slot": "Not A Slot"}),
        ("sink.barriers", {"sink": {"barriers": "log"}}, {}),
        ("sink.format", {"sink": {"format": "csv"}}, {}),
        ("sink.lanes", {"sink": {"lanes": 3}}, {}),
    ],
)
def test_of_jobs(field: str, job: dict[str, Any], source: dict[str, Any]) -> None:
    assert f"{field}: " in refusal_of({}, job, source)
