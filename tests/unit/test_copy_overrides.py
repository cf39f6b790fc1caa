"""Options of some of the datasets that a finder finds."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy.copy_assets import plan_audit
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec, CopySpec
from gobblin_assets.jobs.copy.difference import Deletes
from gobblin_assets.jobs.copy.parsing import find_copy_datasets, read_copy

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def read(source: Path, **options: Any) -> CopySpec:
    places = {"source": str(source), "destination": str(source.with_name("out"))}
    return read_copy({"job": "mirror", "kind": "distcp", "finder": {"pattern": "*/*"}, **places, **options})


def find(job: CopySpec) -> dict[str, CopyDatasetSpec]:
    return {str(urn): each.spec for urn, each in find_copy_datasets(job, NOW).items()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("topics/clicks", "topics/views", "tables/people"):
        (tmp_path / "in" / name).mkdir(parents=True)
    return tmp_path / "in"


def test_what_matches_a_name_comes_over_the_defaults_and_the_last_match_over_the_others(source: Path) -> None:
    found = find(
        read(
            source,
            defaults={"delete_max": 7, "deletes": "ours"},
            overrides=[
                {"match": "topics/*", "deletes": "off", "exclude": ["*.tmp"]},
                {"match": "topics/views", "deletes": "all"},
            ],
        )
    )
    options = {name: (each.deletes, each.exclude, each.delete_max) for name, each in found.items()}
    assert options == {
        "tables/people": (Deletes.OURS, (), 7),
        "topics/clicks": (Deletes.OFF, ("*.tmp",), 7),
        "topics/views": (Deletes.ALL, ("*.tmp",), 7),
    }


def test_an_audit_is_not_bounded_by_an_override(source: Path) -> None:
    job = read(source, overrides=[{"match": "topics/*", "files_per_run_max": 1}])
    assert [each.files_per_run_max for each in find(plan_audit(job)).values()] == [None, None, None]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"overrides": [{"match": "["}]}, r"overrides\[0\]\.match"),
        ({"overrides": [{"match": "a", "to": "b"}]}, r"overrides\[0\]\.to"),
        ({"overrides": [{"match": "a", "partitions": {"kind": "dynamic"}}]}, r"overrides\[0\]\.partitions"),
        ({"overrides": [{"match": "a", "preserve": "z"}]}, r"overrides\[0\]\.preserve"),
        ({"overrides": [{"match": "a", "converters": ["gunzip"], "same": "checksum"}]}, r"overrides\[0\]\.same"),
        ({"overrides": [{"match": "a"}], "finder": None}, "overrides"),
        ({"overrides": [{"match": "a", "converters": ["zip"]}], "destination": "s3://b/out"}, "converters"),
    ],
)
def test_a_wrong_override_is_refused_by_its_field(source: Path, options: dict[str, Any], field: str) -> None:
    with pytest.raises(RejectedError, match=field):
        read(source, **options)
