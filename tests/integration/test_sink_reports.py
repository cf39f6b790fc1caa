"""What Dagster is told of a sink: each window once it is closed, again if rows come late, and seldom in between."""

import datetime as dt
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from sqlalchemy import text

from gobblin_assets.dagster.metadata import PUBLISHED_CHECK
from gobblin_assets.dagster.sink_reports import observe, report_healed, report_windows
from gobblin_assets.dagster.sink_sight import look_at_sink
from gobblin_assets.model.state import RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.state.sinks import SinkBackOff, SinkWindowStore, SinkWorkerRow, UnfinishedSequence
from tests.support.random_logs import Records
from tests.support.sink_lake import JOB, NO_PARTITIONS, URN, SinkWorld
from tests.support.sink_sensor import SinkInDagster, month, sink

__all__ = ["sink"]

pytestmark = pytest.mark.turns(of=8)


def rows_of(records: Records, role: Role = Role.DATA) -> int:
    return sum(count for (of, _vnode, _n), count in records.items() if of == role.value)


def report(sink: SinkInDagster, world: SinkWorld) -> int:
    return report_windows(sink.layout, world.stores, sink.instance, look_at_sink(sink.layout, world.stores))


@pytest.mark.core
def test_a_closed_window_is_told_once_with_its_rows_and_files_also_after_folding(sink: SinkInDagster) -> None:
    world = sink.open(epoch_count=12)
    world.work()
    assert report(sink, world) == 1
    sink.pass_time(100)
    # Whoever takes the lanes now folds what was published.
    world.work(lambda: world.scalar("SELECT count(*) FROM gobblin.commit_sequence WHERE folded_at IS NOT NULL") != 0)
    assert report(sink, world) == 0

    ((partition, metadata),) = sink.reported()
    assert partition == month()
    assert metadata["gobblin/rows"] == rows_of(world.expected()) > 0
    assert metadata["gobblin/dead_letters"] == rows_of(world.expected(), Role.DEAD_LETTER) > 0
    assert metadata["gobblin/files"] == len(world.published_paths())
    assert metadata["dagster/partition_row_count"] == metadata["gobblin/rows"]
    assert metadata["gobblin/epoch"] > 0


def test_what_was_folded_before_it_was_told_is_told_the_same(sink: SinkInDagster) -> None:
    world = sink.open(epoch_count=12)
    world.work()
    folded = "SELECT count(*) FROM gobblin.commit_sequence WHERE folded_at IS NOT NULL"
    world.work(lambda: world.scalar(folded) != 0)
    assert report(sink, world) == 1
    ((_partition, metadata),) = sink.reported()
    assert metadata["gobblin/rows"] == rows_of(world.expected())
    assert metadata["gobblin/files"] == len(world.published_paths())


@pytest.mark.core
def test_nothing_is_told_while_a_worker_may_still_publish_into_the_window(sink: SinkInDagster) -> None:
    world = sink.open()
    told: list[int] = []

    def look() -> bool:
        told.append(report(sink, world))
        return world.is_published()

    world.work(look)
    assert set(told) == {0}, "the worker's clock is in that window"
    assert report(sink, world) == 1


def test_rows_that_come_late_are_told_again(sink: SinkInDagster) -> None:
    world = sink.open(epoch_count=12)
    sink.publish_some(world, 3)
    assert report(sink, world) == 1
    first = rows_of(world.published())
    world.work()
    assert report(sink, world) == 0, "a partition is told once a minute at most"
    sink.pass_time(100)
    assert report(sink, world) == 1
    rows = [metadata["gobblin/rows"] for _partition, metadata in sink.reported()]
    assert rows == [first, rows_of(world.expected())]
    assert rows[0] < rows[1]


def test_a_window_is_told_with_its_columns_and_whether_it_is_published(sink: SinkInDagster) -> None:
    world = sink.open()
    world.work()
    assert report(sink, world) == 1
    ((_partition, metadata),) = sink.reported()
    columns = [column.name for column in metadata["dagster/column_schema"].columns]
    (dataset,) = world.stores.datasets.load(JobName(JOB), [DatasetUrn(URN)]).values()
    assert dataset.published_columns is not None
    assert columns == list(dataset.published_columns)
    assert len(columns) > 1
    (check,) = sink.checked(PUBLISHED_CHECK)
    assert (check.passed, check.partition) == (True, month())
    assert check.target_materialization_data is not None, "else Dagster takes the result for older than the data"


def test_publications_of_releases_that_kept_no_columns_are_told_without(sink: SinkInDagster) -> None:
    world = sink.open()
    world.work()
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE gobblin.dataset SET published_columns = NULL"))
        connection.execute(text("UPDATE gobblin.commit_sequence SET details = details - 'columns'"))
    assert report(sink, world) == 1
    ((_partition, metadata),) = sink.reported()
    assert "dagster/column_schema" not in metadata


def test_the_check_of_a_window_fails_while_a_worker_reports_a_failure_and_passes_when_it_is_over(
    sink: SinkInDagster,
) -> None:
    world = sink.open()
    world.work()
    sight = look_at_sink(sink.layout, world.stores)
    (dataset_id,) = sight.ids.values()
    back_off = SinkBackOff(dataset_id, None, "the disk is full")
    long_ago = SinkWorkerRow(RunId(uuid.uuid4()), "me", "", looked_at=dt.datetime.now(dt.UTC), back_offs=[back_off])
    failing = replace(sight, workers=[long_ago])
    assert report_windows(sink.layout, world.stores, sink.instance, failing) == 1
    (check,) = sink.checked(PUBLISHED_CHECK)
    assert (check.passed, check.description) == (False, "FAILED: the disk is full")

    report_healed(sink.layout, sink.instance, failing)
    assert len(sink.checked(PUBLISHED_CHECK)) == 1, "it still fails"
    for _tick in range(2):
        report_healed(sink.layout, sink.instance, sight)
    assert [each.passed for each in sink.checked(PUBLISHED_CHECK)] == [False, True], "told once, without new rows"


def test_the_check_names_the_publication_that_waits_for_a_person(sink: SinkInDagster) -> None:
    world = sink.open(partitions=NO_PARTITIONS, behind_s=0.0)
    world.work()
    sight = look_at_sink(sink.layout, world.stores)
    ((urn, look),) = sight.looks.items()
    stuck = UnfinishedSequence(SequenceId(uuid.uuid4()), "", is_blocked=True, error="a file is missing.")
    lanes = (replace(look.lanes[0], unfinished=stuck), *look.lanes[1:])
    blocked = replace(sight, looks={urn: replace(look, lanes=lanes)})
    assert report_windows(sink.layout, world.stores, sink.instance, blocked) == 1
    (check,) = sink.checked(PUBLISHED_CHECK)
    assert not check.passed
    assert str(check.description).startswith("BLOCKED: a file is missing.")
    assert str(stuck.sequence_id) in str(check.description)
    report_healed(sink.layout, sink.instance, sight)
    assert [each.passed for each in sink.checked(PUBLISHED_CHECK)] == [False, True]


@dataclass
class Dying:
    """The process dies after Dagster has taken the event, and before the log remembers it."""

    inner: SinkWindowStore

    def mark_reported(self, *_given: Any, **_named: Any) -> None:
        raise KeyboardInterrupt

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.core
def test_a_daemon_that_dies_between_telling_and_recording_tells_again(sink: SinkInDagster) -> None:
    world = sink.open()
    world.work()
    dying = replace(world.stores, sink_windows=Dying(world.stores.sink_windows))
    with pytest.raises(KeyboardInterrupt):
        report_windows(sink.layout, dying, sink.instance, look_at_sink(sink.layout, world.stores))
    assert report(sink, world) == 1
    assert report(sink, world) == 0
    assert len(sink.reported()) == 2


def test_two_daemons_that_look_at_once_tell_at_most_twice(sink: SinkInDagster) -> None:
    world = sink.open()
    world.work()
    sights = [look_at_sink(sink.layout, world.stores) for _daemon in range(2)]
    for sight in sights:
        report_windows(sink.layout, world.stores, sink.instance, sight)
    sink.pass_time(100)
    assert report(sink, world) == 0
    assert len(sink.reported()) == 2


def test_a_dataset_without_partitions_is_told_once_a_minute_at_most_while_it_grows(sink: SinkInDagster) -> None:
    world = sink.open(epoch_count=10, partitions=NO_PARTITIONS, behind_s=0.0)
    told: list[int] = []

    def look() -> bool:
        told.append(report(sink, world))
        return world.is_published()

    world.work(look)
    assert sum(told) == 1
    sink.pass_time(100)
    assert report(sink, world) == 1
    sink.pass_time(100)
    assert report(sink, world) == 0
    shown = sink.reported()
    assert [partition for partition, _metadata in shown] == [None, None]
    assert shown[-1][1]["dagster/row_count"] == rows_of(world.expected())


def test_many_publications_make_one_observation_a_minute(sink: SinkInDagster) -> None:
    world = sink.open(epoch_count=60, vnode_count=2, behind_s=0.0)
    looked: Counter[str] = Counter()

    def look() -> bool:
        looked["ticks"] += 1
        observe(sink.layout, world.stores, sink.instance, look_at_sink(sink.layout, world.stores))
        return world.is_published()

    world.work(look)
    published = world.scalar("SELECT sum(publication_count) FROM gobblin.commit_sequence WHERE step_count > 0")
    assert int(str(published)) > 50
    assert looked["ticks"] > 50
    ((partition, first),) = sink.observed()
    assert partition == month(behind_s=0.0)
    assert (first["gobblin/workers"], first["gobblin/lanes"]) == (1, 2)

    sink.pass_time(100)
    observe(sink.layout, world.stores, sink.instance, look_at_sink(sink.layout, world.stores))
    assert len(sink.observed()) == 1, "nobody works any more"


def test_an_observation_says_what_the_workers_say(sink: SinkInDagster) -> None:
    world = sink.open(epoch_count=20, behind_s=0.0)
    seen: list[Mapping[str, Any]] = []

    def look() -> bool:
        sink.pass_time(100)
        observe(sink.layout, world.stores, sink.instance, look_at_sink(sink.layout, world.stores))
        seen[:] = [metadata for _partition, metadata in sink.observed()]
        return world.is_published()

    world.work(look)
    assert seen[-1]["gobblin/rows"] > 0
    assert seen[-1]["gobblin/lanes_held"] == seen[-1]["gobblin/lanes"] == 2
    assert {"gobblin/lag", "gobblin/epoch", "gobblin/files"} <= seen[-1].keys()


def test_a_lane_without_rows_does_not_keep_its_window_open(sink: SinkInDagster) -> None:
    """It began an attempt together with the others. The barriers of this log lie after that month."""
    now, past = dt.datetime.now(dt.UTC), dt.datetime(2026, 1, 15, tzinfo=dt.UTC)
    world = sink.open(lanes=4, vnode_count=4, epoch_count=20, behind_s=(now - past).total_seconds())
    world.stores.events.begin([world.register()], ["audit"])
    building = "SELECT count(*) FROM gobblin.commit_sequence WHERE state = 'BUILDING'"
    world.work(lambda: world.is_published() and world.scalar(building) == 0)
    assert report(sink, world) == 1
    given_up = "SELECT count(*) FROM gobblin.commit_sequence WHERE state = 'ABORTED'"
    assert int(str(world.scalar(given_up))) > 0
    assert not world.stores.events.list_undelivered_failures(JobName(JOB), "audit", limit=10), "nothing has failed"
    world.check_exactly_once()
