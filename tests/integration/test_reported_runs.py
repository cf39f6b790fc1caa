"""Dagster is told of a run that it did not start: as a run of its own, from the log's records."""

import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import Engine

from gobblin_assets.cli.dagster_telling import Telling
from gobblin_assets.dagster import runless
from gobblin_assets.dagster.factory import build_gobblin_layout
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.published_checks import load_latest
from gobblin_assets.dagster.reported_runs import ReportedRun
from gobblin_assets.dagster.reporting import begin_reported_run, find_untold
from gobblin_assets.dagster.runless import RunlessEvents
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.state import DatasetOutcome, RunId, WorkingState
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.announcements import UntoldError
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.run_values import CheckResult, DatasetReport, RunReport
from tests.support.dagster_world import build_world, describe_job, write_numbers

MONTHLY, WHOLE = DatasetUrn("by month"), DatasetUrn("whole")
JANUARY, FEBRUARY, APRIL = "2013-01-01", "2013-02-01", "2013-04-01"
OPTIONS: dict[str, Any] = {
    "datasets": [
        {
            "table": MONTHLY,
            "extract": "append_only",
            "watermark": {"column": "day", "type": "date"},
            "partitions": {"kind": "monthly", "start": "2013-01-01", "end": "2014-01-01"},
        },
        {"table": WHOLE},
    ]
}
KEY = dg.AssetKey(["shop", MONTHLY])
CHECK = dg.AssetCheckKey(KEY, "gobblin_published")


@pytest.fixture
def layout(tmp_path: Path) -> JobLayout:
    return build_gobblin_layout(describe_job(tmp_path, **OPTIONS))


@pytest.fixture
def latest(tmp_path: Path, database_url: str, engine: Engine) -> Sequence[DatasetReport]:
    """The log's records of two months and a whole table, published by Dagster's runs in another instance."""
    for month, number in ((JANUARY, 1), (FEBRUARY, 2)):
        write_numbers(tmp_path / "source", MONTHLY, month, [number])
    write_numbers(tmp_path / "source", WHOLE, None, [3])
    definitions = build_world(tmp_path, database_url, **OPTIONS)
    with dg.instance_for_test() as another:
        monthly = definitions.resolve_job_def("shop_monthly")
        tags = {"dagster/asset_partition_range_start": JANUARY, "dagster/asset_partition_range_end": FEBRUARY}
        assert monthly.execute_in_process(instance=another, tags=tags).success
        assert definitions.resolve_job_def("shop_whole").execute_in_process(instance=another).success
    return load_latest(open_stores(engine), build_gobblin_layout(describe_job(tmp_path, **OPTIONS)))


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    (tmp_path / "instance").mkdir()
    with dg.instance_for_test(temp_dir=str(tmp_path / "instance")) as made:
        yield made


def begin(layout: JobLayout, instance: dg.DagsterInstance, *keys: str) -> ReportedRun:
    return begin_reported_run(
        layout, {MONTHLY: tuple(AssetPartition(key) for key in keys)}, instance, by="a test", mode="auto"
    )


def find_run(instance: dg.DagsterInstance, run_id: str) -> dg.RunRecord:
    found = instance.get_run_record_by_id(run_id)
    assert found is not None
    return found


def made_report(*reports: DatasetReport) -> RunReport:
    return RunReport(RunId(uuid.UUID(int=1)), WorkingState.COMMITTED, reports)


def test_materializations_and_checks_of_partitions_belong_to_a_run_that_ended(
    layout: JobLayout, latest: Sequence[DatasetReport], instance: dg.DagsterInstance
) -> None:
    months = [report for report in latest if report.urn == MONTHLY]
    run = begin(layout, instance, JANUARY, FEBRUARY)
    assert find_run(instance, run.run_id).dagster_run.status is dg.DagsterRunStatus.MANAGED, "it takes a slot"
    for report in months:
        run.report_publication(report)
    run.end(made_report(*months))
    record = find_run(instance, run.run_id)
    assert (record.dagster_run.status, record.dagster_run.job_name) == (dg.DagsterRunStatus.SUCCESS, "shop_monthly")
    assert record.dagster_run.tags["dagster/asset_partition_range_end"] == FEBRUARY
    assert record.start_time is not None
    assert record.end_time is not None
    assert record.start_time <= record.end_time
    assert instance.get_materialized_partitions(KEY) == {JANUARY, FEBRUARY}
    event = instance.get_latest_materialization_event(KEY)
    assert event is not None
    assert (event.run_id, event.step_key) == (run.run_id, "shop")
    (observed,) = instance.fetch_observations(layout.sources[months[0].urn].key, limit=9).records
    assert observed.run_id == run.run_id, "one of the run, and not of each month"
    found = instance.event_log_storage.get_asset_check_partition_info([CHECK])
    assert {each.partition_key: each.latest_execution_status.value for each in found} == {
        JANUARY: "SUCCEEDED",
        FEBRUARY: "SUCCEEDED",
    }
    assert all(each.is_current for each in found), "Dagster would call the results older than the data"


def test_what_was_not_published_fails_its_check_and_the_run(layout: JobLayout, instance: dg.DagsterInstance) -> None:
    run = begin(layout, instance, JANUARY)
    bad = DatasetReport(MONTHLY, AssetPartition(JANUARY), DatasetOutcome.FAILED, error="no number")
    run.end(made_report(bad))
    assert find_run(instance, run.run_id).dagster_run.status is dg.DagsterRunStatus.FAILURE
    (found,) = instance.event_log_storage.get_asset_check_partition_info([CHECK])
    assert (found.partition_key, found.latest_execution_status.value) == (JANUARY, "FAILED")


def test_months_that_are_no_range_have_a_run_without_partitions(
    layout: JobLayout, instance: dg.DagsterInstance
) -> None:
    run = begin(layout, instance, JANUARY, APRIL)
    assert not [tag for tag in find_run(instance, run.run_id).dagster_run.tags if "partition" in tag]
    run.fail(KeyboardInterrupt())
    assert find_run(instance, run.run_id).dagster_run.status is dg.DagsterRunStatus.FAILURE


def test_datasets_of_two_jobs_are_one_run(
    layout: JobLayout, latest: Sequence[DatasetReport], instance: dg.DagsterInstance
) -> None:
    assert len(find_untold(layout, latest, instance)) == 3
    selection = {report.urn: (report.partition,) for report in latest}
    run = begin_reported_run(layout, selection, instance, by="a test")
    for report in latest:
        run.report_publication(report)
    run.close()
    assert find_untold(layout, latest, instance) == []
    assert find_run(instance, run.run_id).dagster_run.status is dg.DagsterRunStatus.SUCCESS


def test_work_without_a_run_tells_the_checks_of_partitions_once_and_together(
    layout: JobLayout, latest: Sequence[DatasetReport], instance: dg.DagsterInstance
) -> None:
    january, february = (each for each in latest if each.urn == MONTHLY)
    (whole,) = (each for each in latest if each.urn == WHOLE)
    failed = CheckResult("gobblin_published", passed=False, blocking=False, description="older")
    for _ in range(2):
        telling = Telling(layout, RunlessEvents(layout, instance, by="a test"))
        for report in (replace(january, checks=(failed,)), january, february, whole):
            telling.report_publication(report)
        assert instance.get_materialized_partitions(KEY) == {JANUARY, FEBRUARY}
        telling.end(made_report())
        telling.close()
        telling.close()
    found = instance.event_log_storage.get_asset_check_partition_info([CHECK])
    assert {each.partition_key: each.latest_execution_status.value for each in found} == {
        JANUARY: "SUCCEEDED",
        FEBRUARY: "SUCCEEDED",
    }
    assert all(each.is_current for each in found), "Dagster would call the results older than the data"
    runs = instance.get_run_records()
    assert [each.dagster_run.job_name for each in runs] == ["shop_recovery"] * 2, "a run each time, of nothing else"
    assert {each.dagster_run.status for each in runs} == {dg.DagsterRunStatus.SUCCESS}


def test_what_a_stream_publishes_is_checked_while_it_goes_on(
    layout: JobLayout,
    latest: Sequence[DatasetReport],
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    january, february = (each for each in latest if each.urn == MONTHLY)
    events = RunlessEvents(layout, instance, by="a test")
    events.report_publication(january)
    assert instance.event_log_storage.get_asset_check_partition_info([CHECK]) == []
    monkeypatch.setattr(runless, "CHECKS_WAIT_S", 0.0)
    events.report_publication(february)
    found = instance.event_log_storage.get_asset_check_partition_info([CHECK])
    assert {each.partition_key for each in found} == {JANUARY, FEBRUARY}


def test_an_instance_that_takes_nothing_is_said_once_and_nothing_else(
    layout: JobLayout,
    latest: Sequence[DatasetReport],
    instance: dg.DagsterInstance,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    telling = Telling(layout, begin(layout, instance, JANUARY))
    shutil.rmtree(tmp_path / "instance")
    (tmp_path / "instance").write_text("no folder", encoding="utf-8")
    for report in latest:
        with pytest.raises(UntoldError):
            telling.report_publication(report)
    telling.end(made_report(*latest))
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "gobblin-assets report" in said
