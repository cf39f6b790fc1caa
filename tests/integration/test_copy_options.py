"""Options of copies, as they are read: what can't be is refused by the field, before anything is opened."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.errors import RejectedError
from tests.support.copy_lake import CopyLake

MANIFEST: dict[str, Any] = {"datasets": [], "finder": {"kind": "manifest", "path": "/m.jsonl"}}


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> CopyLake:
    return CopyLake(database_url, str(tmp_path))


def test_sizes_may_be_written_with_an_exponent(lake: CopyLake) -> None:
    job = replace(lake, options={"bytes_per_run_max": "1e12", "files_per_run_max": 1e6}).copy_job()
    assert (job.bytes_per_run_max, job.files_per_run_max) == (10**12, 10**6)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"source": "oss://bucket/in"}, "source"),
        ({"source": "gs:///in"}, "source"),
        ({"source": "abfs://container/in"}, "source"),
        ({"destination": "gs://bucket/out"}, "destination"),
        ({"source": "in"}, "source"),
        ({"source": "/"}, "source"),
        ({"source": "hdfs:///in"}, "source"),
        ({"source": "s3:///in"}, "source"),
        ({"source": "s3://bucket/a//b"}, "source"),
        ({"destination": "{d}/source/inside"}, "destination"),
        ({"source": "{d}/lake/inside"}, "source"),
        ({"source": "{d}/lake"}, "destination"),
        ({"datasets": [{"urn": "a", "path": "../x"}]}, "datasets[0].path"),
        ({"datasets": [{"urn": "a", "to": "x/../../y"}]}, "datasets[0].to"),
        ({"datasets": [{"urn": "a", "to": "/etc"}]}, "datasets[0].to"),
        ({"datasets": [{"urn": "a", "to": ".gobblin/crash"}]}, "datasets[0].to"),
        ({"datasets": [{"urn": "a", "to": "b/.GOBBLIN"}]}, "datasets[0].to"),
        ({"datasets": [{"urn": "a", "to": "."}]}, "datasets[0].to"),
        ({"datasets": [{"urn": "a", "to": "./y"}]}, "datasets[0].to"),
        ({"datasets": [{"urn": "a", "path": "x//y"}]}, "datasets[0].path"),
        ({"datasets": [{"urn": "a"}, {"urn": "b", "to": "a/inside"}]}, "datasets"),
        ({"datasets": [{"urn": "a", "to": ""}, {"urn": "b"}]}, "datasets"),
        ({"datasets": [{"urn": "a"}, {"urn": "a", "path": "b"}]}, "datasets[1].urn"),
        ({"datasets": [{"urn": "a", "preserve": "pqz"}]}, "datasets[0].preserve"),
        ({"datasets": [{"urn": "a", "preserve": "p"}]}, "datasets[0].preserve"),
        ({"datasets": [{"urn": "a", "include": ["x"], "exclude": ["y"]}]}, "datasets[0].exclude"),
        ({"datasets": [{"urn": "a", "filters": ["x"]}]}, "datasets[0].filters[0]"),
        ({"datasets": [{"urn": "a", "delete_max": -1}]}, "datasets[0].delete_max"),
        ({"datasets": [{"urn": "a", "deletes": "some"}]}, "datasets[0].deletes"),
        ({"defaults": {"to": "x"}}, "defaults.to"),
        ({"defaults": {"preserve": "pqz"}}, "defaults.preserve"),
        ({"defaults": {"converters": ["guess"]}}, "defaults.converters[0]"),
        ({"defaults": {"exclude": ["["]}, "datasets": []}, "defaults.exclude[0]"),
        ({"defaults": {"preserve": "p"}}, "defaults.preserve"),
        ({"defaults": {"preserve": "p"}, "datasets": [{"urn": "a", "same": "mtime"}]}, "defaults.preserve"),
        ({"defaults": {"converters": ["gunzip"]}, "datasets": [{"urn": "a", "same": "checksum"}]}, "datasets[0].same"),
        ({**MANIFEST, "defaults": {"include": ["*.csv"]}}, "defaults.include"),
        ({**MANIFEST, "defaults": {"exclude": ["*.tmp"]}}, "defaults.exclude"),
        ({**MANIFEST, "defaults": {"filters": ["- *.tmp"]}}, "defaults.filters"),
        ({**MANIFEST, "defaults": {"skip_unchanged_directories": True}}, "defaults.skip_unchanged_directories"),
        ({**MANIFEST, "overrides": [{"match": "*", "exclude": ["*.tmp"]}]}, "overrides[0].exclude"),
        ({"finder": {"kind": "glob", "pattern": "*"}}, "finder"),
        ({"datasets": [], "finder": {"kind": "guess"}}, "finder.kind"),
        ({"datasets": [], "finder": {"kind": "glob", "pattern": "../*"}}, "finder.pattern"),
        ({"datasets": [{"urn": "a", "converters": ["gunzip", "unzip"]}]}, "datasets[0].converters[1]"),
        ({"datasets": [{"urn": "a", "converters": ["gunzip"], "same": "checksum"}]}, "datasets[0].same"),
        ({"source": "s3://bucket/in", "datasets": [{"urn": "a", "converters": ["gunzip"]}]}, "converters"),
        ({"datasets": [{"urn": "a", "converters": ["gunzip"], "split": {"bytes_min": 9}}]}, "datasets[0].split"),
        (
            {"datasets": [{"urn": "a", "converters": ["gunzip"], "skip_unchanged_directories": True}]},
            "datasets[0].skip_unchanged_directories",
        ),
        ({"trash_keep_s": -1}, "trash_keep_s"),
        ({"trigger": {"marker": ""}}, "trigger.marker"),
        ({"datasets": [{"urn": "a", "include": "*.tmp"}]}, "datasets[0].include"),
        ({"datasets": [{"urn": "a", "split": {"bytes_min": "1 GiB"}}]}, "datasets[0].split.bytes_min"),
        ({"trashkeep": 1}, "trashkeep"),
    ],
    ids=str,
)
def test_options_that_no_copy_can_have(lake: CopyLake, options: dict[str, Any], field: str) -> None:
    options = {name: each.format(d=lake.directory) if isinstance(each, str) else each for name, each in options.items()}

    with pytest.raises(RejectedError) as refused:
        replace(lake, options=options).copy_job()

    assert refused.value.field == field
    assert refused.value.hint
    assert not lake.tree.exists()
