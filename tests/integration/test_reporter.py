"""Dagster is told of commands from the log: by a sensor, at least once, whatever happens in between."""

import datetime as dt
import shutil
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import Engine

from gobblin_assets import failpoints
from gobblin_assets.dagster import reporter
from gobblin_assets.dagster.dead_runs import report_dead_runs
from gobblin_assets.dagster.published_checks import find_unreported, load_latest
from gobblin_assets.dagster.reporter import build_reporting_sensor, report_job
from gobblin_assets.dagster.resources import CommitStoreResource
from gobblin_assets.errors import RetryableError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.run_values import DatasetReport, ReportedAs
from gobblin_assets.state.datasets import AskedRun, NewRun
from gobblin_assets.state.reports import describe_backlog, is_late
from tests.support.dagster_instance import open_instance
from tests.support.reported_commands import ToldCommands, reported_sequences

pytestmark = pytest.mark.turns(of=8)

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
KEY, WHOLE_KEY = dg.AssetKey(["shop", MONTHLY]), dg.AssetKey(["shop", WHOLE])
CHECK = dg.AssetCheckKey(KEY, "gobblin_published")
STREAM = ReportedAs("gobblin-assets stream", is_stream=True)


@pytest.fixture
def commands(tmp_path: Path, engine: Engine) -> ToldCommands:
    made = ToldCommands(tmp_path, engine, OPTIONS)
    for month, number in ((JANUARY, 1), (FEBRUARY, 2)):
        made.write(MONTHLY, month, [number])
    made.write(WHOLE, None, [3])
    return made


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with open_instance(tmp_path / "instance") as made:
        yield made


def checks_of(instance: dg.DagsterInstance) -> dict[str | None, str]:
    found = instance.event_log_storage.get_asset_check_partition_info([CHECK])
    return {each.partition_key: each.latest_execution_status.value for each in found}


@pytest.mark.core
def test_a_command_is_a_run_of_its_time_with_what_it_published(
    commands: ToldCommands, instance: dg.DagsterInstance
) -> None:
    report = commands.run((MONTHLY, JANUARY), (MONTHLY, FEBRUARY))
    assert instance.get_runs_count() == 0, "the command wrote to Dagster"
    assert commands.report(instance)

    (record,) = instance.get_run_records()
    run = record.dagster_run
    assert (run.run_id, run.status) == (str(report.run_id), dg.DagsterRunStatus.SUCCESS)
    assert run.job_name == "shop_monthly"
    assert run.tags["gobblin/reported_by"] == "gobblin-assets run"
    assert run.tags["gobblin/asked_mode"] == "auto"
    assert run.tags["dagster/asset_partition_range_start"] == JANUARY
    assert run.tags["dagster/asset_partition_range_end"] == FEBRUARY
    ((began, ended),) = commands.ask("SELECT started_at, ended_at FROM gobblin.run")
    assert (record.start_time, record.end_time) == pytest.approx((began.timestamp(), ended.timestamp()), abs=0.001)
    (done,) = commands.ask("SELECT max(done_at) FROM gobblin.commit_sequence")
    event = instance.get_latest_materialization_event(KEY)
    assert event is not None
    assert event.timestamp == pytest.approx(done[0].timestamp(), abs=0.001)
    (observed,) = instance.fetch_observations(commands.layout.sources[MONTHLY].key, limit=9).records
    assert observed.run_id == run.run_id, "one of the run, and not of each month"
    assert instance.get_materialized_partitions(KEY) == {JANUARY, FEBRUARY}
    assert checks_of(instance) == {JANUARY: "SUCCEEDED", FEBRUARY: "SUCCEEDED"}
    found = instance.event_log_storage.get_asset_check_partition_info([CHECK])
    assert all(each.is_current for each in found), "Dagster would call the results older than the data"
    assert commands.ask("SELECT count(*) FROM gobblin.commit_sequence WHERE announced_at IS NULL") == [(0,)]

    assert commands.report(instance)
    assert len(reported_sequences(instance, KEY)) == 2, "it was told again without reason"


def test_months_that_are_no_range_are_a_run_without_partitions(
    commands: ToldCommands, instance: dg.DagsterInstance
) -> None:
    commands.write(MONTHLY, APRIL, [4])
    commands.run((MONTHLY, JANUARY), (MONTHLY, APRIL))
    commands.report(instance)
    (record,) = instance.get_run_records()
    assert not [tag for tag in record.dagster_run.tags if "partition" in tag]
    assert instance.get_materialized_partitions(KEY) == {JANUARY, APRIL}


def test_datasets_of_two_jobs_of_dagster_s_are_one_run(commands: ToldCommands, instance: dg.DagsterInstance) -> None:
    commands.run((MONTHLY, JANUARY), (WHOLE, None))
    assert len(find_unreported(commands.layout, load_latest(commands.stores, commands.layout), instance)) == 2
    commands.report(instance)
    assert find_unreported(commands.layout, load_latest(commands.stores, commands.layout), instance) == []
    (record,) = instance.get_run_records()
    assert record.dagster_run.status is dg.DagsterRunStatus.SUCCESS


def test_a_command_that_finds_nothing_new_is_nothing_to_tell(
    commands: ToldCommands, instance: dg.DagsterInstance
) -> None:
    commands.run((MONTHLY, JANUARY))
    commands.report(instance)
    commands.run((MONTHLY, JANUARY))
    commands.report(instance)
    assert instance.get_runs_count() == 1
    assert len(reported_sequences(instance, KEY)) == 1
    assert commands.ask("SELECT count(*) FROM gobblin.run WHERE reported_at IS NULL") == [(0,)]
    assert commands.stores.reports.list_backlogs(JobName("shop")) == []


def test_a_failure_is_told_and_so_is_that_it_is_over_without_anything_new(
    commands: ToldCommands, instance: dg.DagsterInstance
) -> None:
    commands.run((MONTHLY, JANUARY))
    commands.write(MONTHLY, JANUARY, [1, "no number"])
    commands.run((MONTHLY, JANUARY))
    commands.report(instance)
    failed = instance.get_run_records()[0]
    assert failed.dagster_run.status is dg.DagsterRunStatus.FAILURE
    assert checks_of(instance) == {JANUARY: "FAILED"}
    said = [each.message for each in instance.all_logs(failed.dagster_run.run_id)]
    assert any("by month [2013-01-01]: FAILED" in line for line in said), said

    commands.write(MONTHLY, JANUARY, [1])
    commands.run((MONTHLY, JANUARY))
    commands.report(instance)
    assert checks_of(instance) == {JANUARY: "SUCCEEDED"}


def test_what_a_run_publishes_is_shown_while_the_run_goes_on(
    commands: ToldCommands, instance: dg.DagsterInstance
) -> None:
    seen: list[tuple[str, int]] = []

    def look(_report: DatasetReport) -> None:
        commands.report(instance)
        (record,) = instance.get_run_records()
        seen.append((record.dagster_run.status.value, len(reported_sequences(instance, KEY))))

    commands.run((MONTHLY, JANUARY), (MONTHLY, FEBRUARY), on_publication=look)
    assert {status for status, _count in seen} == {"MANAGED"}
    assert max(count for _status, count in seen) >= 1
    commands.report(instance)
    (record,) = instance.get_run_records()
    assert record.dagster_run.status is dg.DagsterRunStatus.SUCCESS
    assert len(reported_sequences(instance, KEY)) == 2


@pytest.mark.rotating(of=3)
@pytest.mark.core
@pytest.mark.parametrize("point", [Failpoint.REPORT_BEGUN, Failpoint.REPORT_SENT, Failpoint.REPORT_ENDED])
def test_a_report_that_is_cut_off_goes_on_with_the_same_run(
    commands: ToldCommands, instance: dg.DagsterInstance, point: Failpoint
) -> None:
    report = commands.run((MONTHLY, JANUARY), (MONTHLY, FEBRUARY))

    def cut(reached: Failpoint) -> None:
        if reached is point:
            raise KeyboardInterrupt

    with failpoints.install(cut), pytest.raises(KeyboardInterrupt):
        commands.report(instance)
    assert commands.report(instance)
    (record,) = instance.get_run_records()
    assert (record.dagster_run.run_id, record.dagster_run.status) == (str(report.run_id), dg.DagsterRunStatus.SUCCESS)
    told = reported_sequences(instance, KEY)
    assert len(set(told)) == 2
    assert len(told) == 2 + (point is Failpoint.REPORT_SENT), "at least once, and no more often than that"


def test_two_code_locations_tell_one_thing_once(commands: ToldCommands, instance: dg.DagsterInstance) -> None:
    commands.run((MONTHLY, JANUARY), (MONTHLY, FEBRUARY), (WHOLE, None))
    both = threading.Barrier(2)

    def report() -> None:
        both.wait(timeout=60)
        commands.report(instance)

    threads = [threading.Thread(target=report) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reported_sequences(instance, KEY)) == 2
    assert len(reported_sequences(instance, WHOLE_KEY)) == 1
    assert commands.report(instance)


def test_a_job_that_somebody_else_reports_is_left_to_them_until_their_claim_is_over(
    commands: ToldCommands, instance: dg.DagsterInstance
) -> None:
    commands.run((WHOLE, None))
    assert commands.stores.reports.claim(JobName("shop"), "another one", ttl_s=600)
    assert not commands.report(instance)
    assert instance.get_runs_count() == 0
    commands.execute("UPDATE gobblin.reporter SET claimed_until = clock_timestamp()")
    assert commands.report(instance)
    assert len(reported_sequences(instance, WHOLE_KEY)) == 1


def test_while_dagster_s_storage_is_down_nothing_is_lost_and_it_is_said(
    commands: ToldCommands, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    commands.run((MONTHLY, JANUARY), (WHOLE, None))
    away = tmp_path / "away"
    shutil.move(tmp_path / "instance", away)
    (tmp_path / "instance").write_text("no folder", encoding="utf-8")
    with pytest.raises(RetryableError):
        commands.report(instance)
    commands.execute("UPDATE gobblin.commit_sequence SET done_at = done_at - interval '1 hour'")
    (backlog,) = commands.stores.reports.list_backlogs(None)
    assert is_late(backlog)
    since = backlog.since.astimezone(dt.UTC).strftime("%H:%M")
    said = describe_backlog(backlog)
    assert said.startswith("shop: 2 publications are not reported to Dagster since ")
    assert f" {since}:" in said
    assert "because Dagster does not take the event" in said

    (tmp_path / "instance").unlink()
    shutil.move(away, tmp_path / "instance")
    assert commands.report(instance)
    assert len(reported_sequences(instance, KEY)) == len(reported_sequences(instance, WHOLE_KEY)) == 1
    assert commands.stores.reports.list_backlogs(None) == []


def test_a_daemon_that_never_looks_is_said(commands: ToldCommands) -> None:
    commands.run((WHOLE, None))
    commands.execute("UPDATE gobblin.commit_sequence SET done_at = done_at - interval '5 minutes'")
    (backlog,) = commands.stores.reports.list_backlogs(JobName("shop"))
    assert "1 publication is not reported to Dagster since" in describe_backlog(backlog)
    assert "no daemon of Dagster has looked at this job yet" in describe_backlog(backlog)
    commands.stores.reports.look([JobName("shop")])
    commands.execute("UPDATE gobblin.reporter SET looked_at = looked_at - interval '1 hour'")
    (backlog,) = commands.stores.reports.list_backlogs(JobName("shop"))
    assert "no daemon of Dagster has looked since" in describe_backlog(backlog)


def test_datasets_that_left_the_job_wait_for_a_week_and_then_for_nobody(
    commands: ToldCommands, instance: dg.DagsterInstance
) -> None:
    commands.run((MONTHLY, JANUARY), (WHOLE, None))
    left = ToldCommands(commands.folder, commands.engine, {"datasets": OPTIONS["datasets"][:1]})
    assert left.report(instance)
    assert len(reported_sequences(instance, KEY)) == 1
    (backlog,) = commands.stores.reports.list_backlogs(None)
    assert backlog.publications == 1
    commands.execute("UPDATE gobblin.commit_sequence SET done_at = done_at - interval '8 days'")
    assert commands.stores.reports.list_backlogs(None) == []
    assert left.report(instance)
    assert commands.ask("SELECT count(*) FROM gobblin.commit_sequence WHERE announced_at IS NULL") == [(0,)]


def test_of_what_is_older_than_a_week_only_the_latest_is_told(
    commands: ToldCommands, instance: dg.DagsterInstance
) -> None:
    for numbers in ([1], [1, 4], [1, 4, 5]):
        commands.write(MONTHLY, JANUARY, numbers)
        last = commands.run((MONTHLY, JANUARY))
    commands.execute("UPDATE gobblin.commit_sequence SET done_at = done_at - interval '8 days'")
    assert commands.report(instance)
    publication = last.datasets[0].publication
    assert publication is not None
    assert reported_sequences(instance, KEY) == [str(publication.sequence_id)]


def test_what_an_older_release_left_is_told_apart(commands: ToldCommands, instance: dg.DagsterInstance) -> None:
    commands.run((MONTHLY, JANUARY), reported=None)
    # It died before it could tell of it.
    commands.execute("UPDATE gobblin.commit_sequence SET announced_at = NULL")
    assert commands.report(instance)
    (record,) = instance.get_run_records()
    assert (record.dagster_run.job_name, record.dagster_run.status) == ("shop_recovery", dg.DagsterRunStatus.SUCCESS)
    event = instance.get_latest_materialization_event(KEY)
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.metadata["gobblin/recovered"].value is True


def test_what_a_living_run_of_dagster_s_is_about_to_tell_is_left_to_it(
    commands: ToldCommands, instance: dg.DagsterInstance
) -> None:
    told: list[bool] = []
    commands.run(
        (MONTHLY, JANUARY),
        reported=None,
        dagster_run_id=str(uuid.uuid4()),
        on_publication=lambda _report: told.append(commands.report(instance)),
    )
    assert told == [True]
    assert reported_sequences(instance, KEY) == []


def test_a_publication_older_than_one_that_dagster_knows_does_not_hide_it(
    commands: ToldCommands, instance: dg.DagsterInstance
) -> None:
    commands.run((MONTHLY, JANUARY))
    commands.write(MONTHLY, JANUARY, [1, 7])
    # A run of Dagster's tells of its own, and leaves the command's to the sensor.
    commands.run((MONTHLY, JANUARY), reported=None)
    assert commands.report(instance)
    assert reported_sequences(instance, KEY) == []
    assert instance.fetch_observations(KEY, limit=10).records


def test_a_later_publication_that_was_told_meanwhile_is_told_last(
    commands: ToldCommands, instance: dg.DagsterInstance
) -> None:
    first = commands.run((MONTHLY, JANUARY))
    commands.write(MONTHLY, JANUARY, [1, 7])

    def run_beside(reached: Failpoint) -> None:
        if reached is Failpoint.REPORT_BEGUN:
            commands.run((MONTHLY, JANUARY), reported=None)

    with failpoints.install(run_beside):
        assert commands.report(instance)
    publication = first.datasets[0].publication
    assert publication is not None
    told = reported_sequences(instance, KEY)
    assert told[0] == str(publication.sequence_id)
    ((latest,),) = commands.ask("SELECT sequence_id FROM gobblin.commit_sequence ORDER BY result_version DESC LIMIT 1")
    assert told[-1] == str(latest)


def test_a_stream_is_events_without_a_run_and_its_checks_come_together(
    commands: ToldCommands, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands.run((MONTHLY, JANUARY), (WHOLE, None), reported=STREAM)
    commands.report(instance)
    runs = instance.get_run_records()
    assert [each.dagster_run.job_name for each in runs] == ["shop_recovery"], "a run that only tells checks"
    assert checks_of(instance) == {JANUARY: "SUCCEEDED"}
    whole = dg.AssetCheckKey(WHOLE_KEY, "gobblin_published")
    assert instance.event_log_storage.get_asset_check_execution_history(whole, limit=5)

    seen: list[tuple[set[str], set[str | None]]] = []

    def look(_report: DatasetReport) -> None:
        for every_s in (600.0, 0.0):
            monkeypatch.setattr(reporter, "CHECKS_EVERY_S", every_s)
            commands.report(instance)
            seen.append((set(instance.get_materialized_partitions(KEY)), set(checks_of(instance))))

    commands.run((MONTHLY, FEBRUARY), reported=STREAM, on_publication=look)
    assert seen == [({JANUARY, FEBRUARY}, {JANUARY}), ({JANUARY, FEBRUARY}, {JANUARY, FEBRUARY})]


@pytest.mark.core
def test_a_command_that_died_is_a_run_that_failed(commands: ToldCommands, instance: dg.DagsterInstance) -> None:
    run_id = RunId(uuid.uuid4())
    asked = AskedRun("gobblin-assets run", "auto", (WHOLE,), None, is_stream=False)
    commands.stores.runs.begin(NewRun(run_id, JobName("shop"), "host:1", asked=asked))
    commands.report(instance)
    assert instance.get_runs_count() == 0
    now = dt.datetime.now(dt.UTC)
    lapsed = commands.stores.runs.list_lapsed(JobName("shop"), limit=50)
    seen = report_dead_runs(instance, commands.stores, lapsed, {}, now, idle_s_max=60)
    later = now + dt.timedelta(seconds=61)
    report_dead_runs(instance, commands.stores, lapsed, seen, later, idle_s_max=60)
    commands.report(instance)
    (record,) = instance.get_run_records()
    assert (record.dagster_run.run_id, record.dagster_run.status) == (str(run_id), dg.DagsterRunStatus.FAILURE)


def test_the_sensor_tells_of_all_jobs_and_of_one_job_s_fault_behind_the_others(
    commands: ToldCommands, instance: dg.DagsterInstance, database_url: str
) -> None:
    commands.run((MONTHLY, JANUARY))
    sensor = build_reporting_sensor([commands.job])
    resources = {"gobblin_stores": CommitStoreResource(database_url=database_url)}
    with dg.build_sensor_context(instance=instance, resources=resources) as context:
        assert sensor.evaluate_tick(context).skip_message
    assert len(reported_sequences(instance, KEY)) == 1
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    assert (sensor.minimum_interval_seconds or 0) < 5, "Dagster would evaluate it at every other of its looks"


def test_a_report_ends_in_time_and_the_next_one_goes_on(commands: ToldCommands, instance: dg.DagsterInstance) -> None:
    commands.run((MONTHLY, JANUARY), (MONTHLY, FEBRUARY))
    assert not report_job(commands.job, commands.stores, instance, until_s=0.0)
    assert len(reported_sequences(instance, KEY)) == 1
    assert commands.report(instance)
    assert len(reported_sequences(instance, KEY)) == 2
