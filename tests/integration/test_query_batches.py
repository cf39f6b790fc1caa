"""Batches of Structured Streaming, published exactly once: restarts, repetitions, gaps and other queries."""

import shutil
import signal
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.errors.exceptions.connect import StreamingQueryException as ConnectStreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from gobblin_assets import foreach_batch, run_job, run_stream
from gobblin_assets.dagster import build_definitions
from gobblin_assets.dagster.factory import build_gobblin_layout, build_reported_job
from gobblin_assets.dagster.published_checks import find_unreported
from gobblin_assets.errors import RejectedError
from gobblin_assets.failpoints import Failpoint, install
from gobblin_assets.jobs.sink.sink_rules import check_sink_job
from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import Role
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.run_values import DatasetReport
from gobblin_assets.spark.connect_server import ConnectServer
from gobblin_assets.spec.job_parsing import parse_job
from gobblin_assets.state.leases import Holder
from tests.support.expired import expire_all_leases
from tests.support.query_batches import URN, Clicks, clicks, rows_of, start_query
from tests.support.spark import in_child, open_remote

__all__ = ["clicks"]

pytestmark = pytest.mark.turns(of=8)

KILLED = -signal.SIGKILL
# Before and behind the point of no return, and behind the publication, before Spark's own commit of the batch.
KILLS = (
    Failpoint.SEAL_COMMITTED,
    pytest.param(Failpoint.ATTEMPT_WRITTEN, marks=pytest.mark.thorough),
    pytest.param(Failpoint.FINISHED_BEFORE_EVENTS, marks=pytest.mark.thorough),
)


@pytest.mark.core
def test_each_batch_is_a_publication_and_a_restart_goes_on(clicks: Clicks) -> None:
    events: list[DatasetReport] = []
    clicks.put("a", range(5))
    clicks.put("b", range(5, 9))
    query_id = clicks.run(on_publication=events.append)

    assert clicks.rows() == rows_of(*range(9)), clicks.lines
    assert [each.publication.row_count for each in events if each.publication] == [5, 4]
    assert [each.figures["rows_read"] for each in events] == [5, 4]
    clicks.put("c", range(9, 12))
    assert clicks.run() == query_id
    assert clicks.rows() == rows_of(*range(12))
    found = clicks.ask_log("SELECT name, watermark -> 'value' FROM gobblin.watermark_key")
    assert found == [(f"query {query_id}", 3)]
    assert clicks.ask_log("SELECT count(*) FROM gobblin.commit_sequence WHERE state <> 'DONE'") == [(0,)]


@pytest.mark.core
@pytest.mark.parametrize("point", KILLS)
def test_a_batch_is_published_once_though_its_process_is_killed(clicks: Clicks, point: Failpoint) -> None:
    clicks.put("a", range(5))
    clicks.put("b", range(5, 9))

    # In the second batch, so that there is a batch before it.
    done = clicks.run_in_child(failpoint=f"{point}=kill@2")
    assert done.returncode == KILLED, done.stderr
    expire_all_leases(clicks.engine)
    clicks.run()

    assert clicks.rows() == rows_of(*range(9))
    assert clicks.ask_log("SELECT count(*) FROM gobblin.commit_sequence WHERE state = 'DONE'") == [(2,)]
    is_skipped = f"{URN}: batch 1 is published already, and is skipped" in clicks.lines
    assert is_skipped == (point is not Failpoint.ATTEMPT_WRITTEN), clicks.lines
    is_completed = any("completed sequence" in line for line in clicks.lines)
    assert is_completed == (point is Failpoint.SEAL_COMMITTED), clicks.lines


def test_a_new_checkpoint_is_refused_until_a_person_says_that_it_takes_over(clicks: Clicks) -> None:
    clicks.put("a", range(5))
    old = clicks.run("old")
    clicks.put("b", range(5, 9))
    with pytest.raises(StreamingQueryException, match=f"is published by the query {old}, up to its batch 0") as caught:
        clicks.run("new")
    assert f"takes_over='{old}'" in str(caught.value)
    assert clicks.rows() == rows_of(*range(5))

    # Its person knows what it reads: here all of it again, and so doubled.
    new = clicks.run("new", takes_over=old)
    assert clicks.rows() == rows_of(*range(9)) + rows_of(*range(5))
    clicks.put("c", range(9, 12))
    assert clicks.run("new", takes_over=old) == new
    assert clicks.rows() == rows_of(*range(12)) + rows_of(*range(5))
    with pytest.raises(StreamingQueryException, match=f"is published by the query {new}, up to its batch 2"):
        clicks.run("old")


def publish_elsewhere(clicks: Clicks) -> None:
    """Batches of the same checkpoint that the dataset does not get."""
    (
        clicks.spark.readStream.schema("id long, name string")
        .json(str(clicks.folder / "in"))
        .writeStream.foreachBatch(lambda _frame, _batch_id: None)
        .option("checkpointLocation", str(clicks.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


def test_batches_that_went_elsewhere_are_never_left_out_unsaid(clicks: Clicks) -> None:
    clicks.put("a", range(5))
    publish_elsewhere(clicks)
    clicks.put("b", range(5, 9))
    with pytest.raises(StreamingQueryException, match="expected batch 0 of the query") as caught:
        clicks.run()
    assert "first_batch=1" in str(caught.value)
    clicks.run(first_batch=1)
    assert clicks.rows() == rows_of(*range(5, 9))

    clicks.put("c", range(9, 12))
    publish_elsewhere(clicks)
    clicks.put("d", range(12, 14))
    with pytest.raises(StreamingQueryException, match="expected batch 2 of the query"):
        clicks.run(first_batch=1)
    assert clicks.rows() == rows_of(*range(5, 9))


def forget_batch(checkpoint: Path, batch_id: int, *folders: str) -> None:
    for folder in folders:
        for path in (checkpoint / folder).glob(f"*{batch_id}*"):
            if path.name.strip(".").split(".")[0] == str(batch_id):
                path.unlink()


@pytest.mark.core
def test_a_repeated_batch_is_skipped_and_one_of_an_older_checkpoint_refused(clicks: Clicks) -> None:
    checkpoint = clicks.folder / "checkpoint"
    clicks.put("a", range(5))
    clicks.put("b", range(5, 9))
    clicks.run()
    forget_batch(checkpoint, 1, "commits")
    clicks.run()
    assert clicks.lines == [f"{URN}: batch 1 is published already, and is skipped"]
    assert clicks.rows() == rows_of(*range(9))

    # Had the batch been skipped now, the row of the new file would be lost.
    (clicks.folder / "in" / "b.json").unlink()
    clicks.put("c", range(5, 10))
    forget_batch(checkpoint, 1, "commits", "offsets", "sources/0")
    with pytest.raises(StreamingQueryException, match="gives batch 1 anew"):
        clicks.run()
    shutil.rmtree(checkpoint / "commits")
    forget_batch(checkpoint, 1, "offsets", "sources/0")
    with pytest.raises(StreamingQueryException, match="gives batch 0 anew"):
        clicks.run()
    assert clicks.rows() == rows_of(*range(9))


def test_the_lease_refuses_a_second_query_meanwhile(clicks: Clicks) -> None:
    clicks.put("a", range(5))
    refused: list[str] = []
    asked = threading.Lock()

    def start_second(point: Failpoint) -> None:
        if point is Failpoint.ATTEMPT_WRITTEN and asked.acquire(blocking=False):
            with pytest.raises(StreamingQueryException) as caught:
                clicks.run("second")
            refused.append(str(caught.value))

    with install(start_second):
        clicks.run("first")

    assert "RetryableError" in refused[0]
    assert "is being worked on by" in refused[0]
    assert clicks.rows() == rows_of(*range(5))


def test_what_lost_its_lease_publishes_nothing(clicks: Clicks) -> None:
    clicks.put("a", range(5))
    stores = open_stores(clicks.engine)
    taken = threading.Lock()

    def take_over(point: Failpoint) -> None:
        if point is Failpoint.ATTEMPT_WRITTEN and taken.acquire(blocking=False):
            ((dataset_id,),) = clicks.ask_log("SELECT dataset_id FROM gobblin.dataset")
            expire_all_leases(clicks.engine)
            leases = stores.leases.take([dataset_id], Holder("another", RunId(uuid.uuid4()), None), ttl_s=60.0)
            assert len(leases) == 1
            stores.leases.release(leases)

    with install(take_over), pytest.raises(StreamingQueryException, match="FencedError"):
        clicks.run()
    assert taken.locked()
    assert clicks.ask_log("SELECT count(*) FROM gobblin.commit_sequence WHERE state = 'DONE'") == [(0,)]
    clicks.run()
    assert clicks.rows() == rows_of(*range(5))


def run_changed(clicks: Clicks, change: Callable[[DataFrame], DataFrame], **options: Any) -> None:
    """A query whose own function changes each batch before it publishes it."""
    publish = foreach_batch(clicks.job, URN, say=clicks.lines.append, **options)
    (
        clicks.spark.readStream.schema("id long, name string")
        .json(str(clicks.folder / "in"))
        .writeStream.foreachBatch(lambda frame, batch_id: publish(change(frame), batch_id))
        .option("checkpointLocation", str(clicks.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


def test_columns_that_no_file_can_hold_are_refused(clicks: Clicks) -> None:
    clicks.put("a", range(5))
    for change, said in (
        (lambda frame: frame.select("id", f.col("name").alias("ID")), "two columns would be called 'ID'"),
        (lambda frame: frame.selectExpr("id", "make_interval(1) AS wait"), "wait"),
        (lambda frame: frame.selectExpr("id", "name AS gobblin_share"), "Gobblin hides in rows"),
    ):
        with pytest.raises(StreamingQueryException, match="RejectedError") as caught:
            run_changed(clicks, change)
        assert said in str(caught.value)

    run_changed(clicks, lambda frame: frame)
    assert clicks.rows() == rows_of(*range(5))


def test_columns_change_by_the_rules_of_every_dataset(clicks: Clicks) -> None:
    clicks.put("a", range(2))
    run_changed(clicks, lambda frame: frame.selectExpr("int(id) AS id", "name"))
    clicks.put("b", range(2, 4))
    with pytest.raises(StreamingQueryException, match=r"clicks\.name \(string\) is gone"):
        run_changed(clicks, lambda frame: frame.select("id"))
    with pytest.raises(StreamingQueryException, match="no type holds every value of both"):
        run_changed(clicks, lambda frame: frame.selectExpr("id", "array(name) AS name"))

    run_changed(clicks, lambda frame: frame)
    assert clicks.rows() == rows_of(*range(4))


@pytest.mark.thorough
def test_windows_directories_and_checks_are_those_of_every_dataset(clicks: Clicks) -> None:
    clicks.dataset = {
        "partitions": {"kind": "monthly", "start": "2020-01-01"},
        "converters": [{"where": "id <> 3"}, {"sql": {"at": "timestamp '2026-01-01 23:30:00'"}}],
        "quality": {"rows": [{"name": "small", "check": "id < 8", "on_failure": "err_file"}]},
        "writer": {"time_column": "at", "time_pattern": "yyyy-MM-dd", "time_name": "day"},
    }
    clicks.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    zones: set[str | None] = set()

    def look(frame: DataFrame) -> DataFrame:
        zones.add(frame.sparkSession.conf.get("spark.sql.session.timeZone"))
        return frame

    try:
        for number, name in enumerate("ab"):
            clicks.put(name, range(5 * number, 5 * number + 5))
            run_changed(clicks, look)
    finally:
        clicks.spark.conf.set("spark.sql.session.timeZone", "UTC")

    assert clicks.list_ids() == [0, 1, 2, 4, 5, 6, 7]
    assert clicks.list_ids(role=Role.QUARANTINE) == [8, 9]
    # Directories are in UTC whatever the query's session says, and the query keeps its own zone.
    assert {path.name for path in (clicks.folder / "lake").rglob("day=*")} == {"day=2026-01-01"}
    assert zones == {"Asia/Tokyo"}


@pytest.mark.thorough
def test_an_aggregation_with_its_state_is_published_and_read_once(clicks: Clicks) -> None:
    reads = clicks.spark.sparkContext.accumulator(0)

    def count(batches: Any) -> Any:
        for batch in batches:
            reads.add(batch.num_rows)
            yield batch

    publish = foreach_batch(clicks.job, URN, say=clicks.lines.append)
    clicks.put("a", range(6))
    (
        clicks.spark.readStream.schema("id long, name string")
        .json(str(clicks.folder / "in"))
        .mapInArrow(count, "id long, name string")
        .groupBy((f.col("id") % 2).alias("id"))
        .agg(f.count("*").cast("string").alias("name"))
        .writeStream.outputMode("update")
        .foreachBatch(publish)
        .option("checkpointLocation", str(clicks.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )

    assert clicks.rows() == {(0, "3"): 1, (1, "3"): 1}
    assert reads.value == 6


@pytest.mark.thorough
def test_batches_without_rows_count_and_small_files_are_compacted(clicks: Clicks) -> None:
    clicks.options = {"compaction": {"files_min": 2, "quiet_s": 0.0}}
    clicks.put("a", range(2))
    run_changed(clicks, lambda frame: frame.where("false"))
    assert clicks.rows() == rows_of()
    for number, name in enumerate("bc", 1):
        clicks.put(name, range(2 * number, 2 * number + 2))
        run_changed(clicks, lambda frame: frame)

    assert clicks.rows() == rows_of(*range(2, 6))
    assert clicks.ask_log("SELECT watermark -> 'value' FROM gobblin.watermark_key") == [(3,)]
    assert any("compacted" in line for line in clicks.lines), clicks.lines


@pytest.mark.thorough
def test_a_query_that_is_stopped_within_a_batch_publishes_it_and_goes_on(clicks: Clicks) -> None:
    clicks.put("a", range(5))
    clicks.put("b", range(5, 9))
    reached, stopping = threading.Event(), threading.Event()

    def wait(point: Failpoint) -> None:
        if point is Failpoint.ATTEMPT_WRITTEN:
            reached.set()
            stopping.wait(10.0)

    with install(wait):
        query = clicks.start()
        assert reached.wait(60.0)
        threading.Timer(0.5, stopping.set).start()
        query.stop()
    assert clicks.rows() == rows_of(*range(5))
    clicks.run()
    assert clicks.rows() == rows_of(*range(9))


def test_dagster_refuses_to_materialize_and_is_told_of_what_is_published(
    clicks: Clicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOBBLIN_HOME", str(clicks.folder / "home"))
    events: list[DatasetReport] = []
    clicks.put("a", range(5))
    clicks.run(on_publication=events.append)
    layout, key = build_gobblin_layout(clicks.job), dg.AssetKey(["web", URN])

    with dg.DagsterInstance.ephemeral() as instance:
        done = (
            build_definitions([clicks.job])
            .resolve_implicit_global_asset_job_def()
            .execute_in_process(instance=instance, raise_on_error=False)
        )
        (failed,) = [event for event in done.all_events if event.is_step_failure]
        assert "foreach_batch(job, urn)" in str(failed.step_failure_data.error)

        assert find_unreported(layout, events, instance) == events
        run = build_reported_job(layout).begin(instance, [events[0].urn], None, by="report")
        run.report_publication(events[0])
        run.close()
        assert find_unreported(layout, events, instance) == []
        assert instance.get_latest_materialization_event(key) is not None


def test_a_call_outside_of_a_query_is_refused(clicks: Clicks) -> None:
    frame = clicks.spark.createDataFrame([(1, "n1")], "id long, name string")
    with pytest.raises(RejectedError, match="expected a call by foreachBatch") as caught:
        foreach_batch(clicks.job, URN)(frame, 0)
    assert caught.value.field == "foreachBatch"


def run_on_connect(server: ConnectServer, job: dict[str, Any], folder: Path) -> str:
    """What ended a query whose function runs on a Connect server."""
    with pytest.raises(ConnectStreamingQueryException) as caught:
        start_query(open_remote(server), job, folder, "checkpoint").awaitTermination()
    return str(caught.value)


@pytest.mark.thorough
def test_a_query_on_a_connect_server_is_refused(clicks: Clicks, connect: ConnectServer) -> None:
    clicks.put("a", range(5))

    assert "found one on a Spark Connect server" in in_child(run_on_connect, connect, clicks.job, clicks.folder)


def test_no_run_stream_or_sink_reads_a_query(clicks: Clicks) -> None:
    for refused in (
        lambda: run_job(clicks.job),
        lambda: run_stream(clicks.job, lambda _seconds: True),
        lambda: check_sink_job(parse_job(clicks.job)),
    ):
        with pytest.raises(RejectedError, match="no run reads the rows of a query") as caught:
            refused()
        assert caught.value.field == "source.type"
        assert "foreach_batch(job, urn)" in caught.value.hint
