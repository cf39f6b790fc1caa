"""What a run that follows topics may ask for at the same time, and what not."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.dagster.factory import build_gobblin_layout
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.run_config import GobblinRunConfig, find_sink_s, find_stream_s, require_sink, require_stream
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.partition import WHOLE
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.spec.job_files import read_job_file
from gobblin_assets.spec.partition_keys import asset_partition

JOB = """
job: events
source: {type: kafka, connection: shop}
destination: ./lake
datasets: [{topic: views}, {topic: clicks, partitions: {kind: monthly, start: 2026-01-01}}]
"""
VIEWS, CLICKS = DatasetUrn("views"), DatasetUrn("clicks")


@pytest.fixture
def layout(tmp_path: Path) -> JobLayout:
    path = tmp_path / "job.yaml"
    path.write_text(JOB, encoding="utf-8")
    return build_gobblin_layout(read_job_file(path))


@pytest.mark.parametrize("asked", [{}, {"mode": "append"}, {"mode": "auto"}], ids=str)
def test_a_stream_follows_whole_topics_and_windows_that_are_open(layout: JobLayout, asked: dict[str, Any]) -> None:
    config = GobblinRunConfig(stream_s=60.0, **asked)
    require_stream(config, {}, layout, {VIEWS: (WHOLE,)})
    month = dt.datetime.now(dt.UTC).strftime("%Y-%m-01")
    require_stream(config, {}, layout, {CLICKS: (asset_partition(layout.datasets[CLICKS], month),)})


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_how_long_is_a_number_above_0(layout: JobLayout, seconds: float) -> None:
    with pytest.raises(RejectedError, match=r"stream_s: expected a number of seconds above 0"):
        require_stream(GobblinRunConfig(stream_s=seconds), {}, layout, {VIEWS: (WHOLE,)})


@pytest.mark.parametrize(
    ("asked", "tags"),
    [
        ({"restart": "start_over"}, {}),
        ({"start_at": {"0": 1}}, {}),
        ({"mode": "refresh"}, {}),
        ({}, {"gobblin/mode": "refresh"}),
    ],
    ids=str,
)
def test_nothing_else_is_asked_of_a_stream(layout: JobLayout, asked: dict[str, Any], tags: dict[str, str]) -> None:
    with pytest.raises(RejectedError, match=r"stream_s: a stream goes on from the watermarks"):
        require_stream(GobblinRunConfig(stream_s=60.0, **asked), tags, layout, {VIEWS: (WHOLE,)})


def test_a_window_that_was_open_when_the_run_was_made_is_followed_on_from(layout: JobLayout) -> None:
    """The run waited in the queue, or is tried again."""
    made_at = dt.datetime(2026, 1, 31, 23, 59, tzinfo=dt.UTC)
    selection = {CLICKS: (asset_partition(layout.datasets[CLICKS], "2026-01-01"),)}
    require_stream(GobblinRunConfig(stream_s=60.0), {}, layout, selection, made_at=made_at)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"ops": {"events": {"config": {"stream_s": 60}}}}, 60.0),
        ({"ops": {"events": {"config": {"stream_s": None}}}}, None),
        ({"ops": {"events": {"config": {}}}}, None),
        ({"ops": {"others": {"config": {"stream_s": 60}}}}, None),
        ({"ops": None}, None),
        ({}, None),
    ],
    ids=str,
)
def test_for_how_long_a_run_follows_topics_is_read_from_its_configuration(
    config: dict[str, Any], expected: float | None
) -> None:
    assert find_stream_s(config, JobName("events")) == expected


def test_a_window_that_has_passed_is_not_followed(layout: JobLayout) -> None:
    passed = asset_partition(layout.datasets[CLICKS], "2026-01-01")
    with pytest.raises(RejectedError, match=r"stream_s: a stream of clicks reads into the window that is open, 20"):
        require_stream(GobblinRunConfig(stream_s=60.0), {}, layout, {CLICKS: (passed,)})


@pytest.mark.parametrize("seconds", [None, 0.0, -1.0, float("nan"), float("inf")])
def test_how_long_a_worker_works_is_a_number_above_0(layout: JobLayout, seconds: float | None) -> None:
    with pytest.raises(RejectedError, match=r"sink_s: expected a number of seconds above 0"):
        require_sink(GobblinRunConfig(sink_s=seconds), {}, layout, {})


def test_a_worker_names_no_partition_or_the_window_that_is_open(layout: JobLayout) -> None:
    config = GobblinRunConfig(sink_s=60.0)
    month = dt.datetime.now(dt.UTC).strftime("%Y-%m-01")
    require_sink(config, {}, layout, {})
    require_sink(config, {}, layout, {CLICKS: (asset_partition(layout.datasets[CLICKS], month),)})
    passed = asset_partition(layout.datasets[CLICKS], "2026-01-01")
    with pytest.raises(RejectedError, match=r"sink_s: a stream of clicks reads into the window that is open, 20"):
        require_sink(config, {}, layout, {CLICKS: (passed,)})


@pytest.mark.parametrize("asked", [{"restart": "start_over"}, {"start_at": {"0": 1}}, {"mode": "refresh"}], ids=str)
def test_nothing_else_is_asked_of_a_worker(layout: JobLayout, asked: dict[str, Any]) -> None:
    with pytest.raises(RejectedError, match=r"sink_s: a stream goes on from the watermarks"):
        require_sink(GobblinRunConfig(sink_s=60.0, **asked), {}, layout, {})


def test_a_run_is_a_stream_or_a_worker(layout: JobLayout) -> None:
    config = GobblinRunConfig(stream_s=60.0, sink_s=60.0)
    with pytest.raises(RejectedError, match=r"stream_s: a run is a stream, or a worker of a sink"):
        require_stream(config, {}, layout, {VIEWS: (WHOLE,)})


def test_a_worker_is_told_from_a_stream() -> None:
    config = {"ops": {"events": {"config": {"sink_s": 60}}}}
    assert (find_sink_s(config, JobName("events")), find_stream_s(config, JobName("events"))) == (60.0, None)
