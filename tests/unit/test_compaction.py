"""The rule for which partitions are compacted."""

import pytest

from gobblin_assets.commit.published.published_port import PublishedPartition
from gobblin_assets.errors import RejectedError
from gobblin_assets.run.compaction import plan_compaction
from gobblin_assets.spec.job_parsing import parse_job
from gobblin_assets.spec.job_spec import CompactionSpec

SPEC = CompactionSpec(files_min=10, file_bytes_target=100, quiet_s=60.0)


def plan(*partitions: tuple[str, int, int, float], spec: CompactionSpec = SPEC) -> list[str]:
    return [each.partition for each in plan_compaction([PublishedPartition(*each) for each in partitions], spec)]


def test_many_small_files_that_rest_are_compacted_most_first() -> None:
    assert plan(("few", 9, 90, 61.0), ("some", 10, 100, 61.0), ("many", 50, 100, 60.0)) == ["many", "some"]


def test_a_partition_that_was_published_to_waits() -> None:
    assert plan(("open", 50, 100, 59.9)) == []
    assert plan(("open", 50, 100, 0.0), spec=SPEC.model_copy(update={"quiet_s": 0.0})) == ["open"]


def test_files_that_would_stay_as_many_are_left_alone() -> None:
    assert plan(("large", 10, 1_000, 99.0)) == [], "each is as large as it should be"
    assert plan(("half", 10, 501, 99.0)) == [], "six files of ten"
    assert plan(("half", 10, 500, 99.0)) == ["half"]
    assert plan(("empty", 10, 0, 99.0)) == ["empty"]


@pytest.mark.parametrize("destination", ["s3://bucket/lake", "hdfs://namenode/lake"])
def test_compaction_is_refused_where_files_are_published_one_by_one(destination: str) -> None:
    job = {
        "job": "shop",
        "source": {"connection": "sales"},
        "destination": destination,
        "datasets": [{"urn": "public.orders"}],
    }
    assert parse_job(job).compaction is None

    with pytest.raises(RejectedError, match="whole directories are renamed") as refused:
        parse_job({**job, "compaction": {}})

    assert refused.value.fields["field"] == "compaction"
