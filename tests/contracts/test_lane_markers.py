"""Markers of a dataset's lanes: what the log forgot of one lane stops the dataset."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gobblin_assets.commit import markers as log_markers
from gobblin_assets.commit.markers import (
    LogBehindError,
    StorageBehindError,
    check_log,
    check_logs,
    list_markers,
    marker_directory,
    prune_markers,
    put_markers,
    remove_markers,
    sync_markers,
)
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.state.leases import Lease
from tests.simulation.database import SimDatabase
from tests.simulation.disk import SimDisk
from tests.simulation.file_system import SimFileSystem
from tests.support.commit_log import JOB, Built, LogWorld, open_simulated
from tests.support.file_systems import ADAPTERS
from tests.support.places import SIMULATED, Place, open_place

TOPIC = DatasetUrn("a/topic")


@pytest.fixture(params=[SIMULATED, *sorted(ADAPTERS)[:1]])
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return open_place(request.param, tmp_path)


def two_lanes(log: LogWorld) -> tuple[Lease, Lease]:
    first, second = log.spread(log.register(TOPIC), 2)
    return log.take_lane(first), log.take_lane(second)


def mark(log: LogWorld, place: Place, built: Built, *, fence: int | None = None) -> None:
    (sealed,) = log.commits.load_sealed(built.sequence_id)
    put_markers(place.fs, place.root, [(sealed, built.fence if fence is None else fence)])
    sync_markers(place.fs, place.root, [sealed])


def publish(log: LogWorld, place: Place, lease: Lease) -> Built:
    built = log.prepare(lease, moves=[])
    mark(log, place, built)
    log.commits.finish(built.sequence_id, fence=lease.fence)
    return built


def found(place: Place) -> list[tuple[int, int, int]]:
    return [(each.lane_number, each.version, each.fence) for each in list_markers(place.fs, place.root, JOB, TOPIC)]


def check(log: LogWorld, place: Place, lease: Lease) -> None:
    check_log(log.commits, place.fs, place.root, JOB, TOPIC, lease)


def test_markers_of_lanes_stand_below_those_of_lane_0(log: LogWorld, local: Place) -> None:
    first, second = two_lanes(log)
    publish(log, local, second)
    publish(log, local, first)
    publish(log, local, second)

    assert found(local) == [(0, 1, first.fence), (1, 1, second.fence), (1, 2, second.fence)]
    names = [marker.path for marker in list_markers(local.fs, local.root, JOB, TOPIC)]
    top = marker_directory(local.root, JOB, TOPIC)
    assert [name.rpartition("/")[0] for name in names] == [top, f"{top}/.lane-1", f"{top}/.lane-1"]
    check(log, local, first)
    check(log, local, second)


@pytest.mark.parametrize("number", [0, 1])
def test_a_publication_of_one_lane_that_the_log_forgot_stops_the_dataset(
    log: LogWorld, local: Place, number: int
) -> None:
    leases = two_lanes(log)
    for lease in leases:
        publish(log, local, lease)
    # Another log, whose sequences this one never had, at the same destination.
    other = open_simulated(SimDatabase())
    publish(other, local, two_lanes(other)[number])

    for lease in leases:
        with pytest.raises(LogBehindError, match="1 of its publications"):
            check(log, local, lease)
    orders = log.take(log.register("orders"))
    asked: Mapping[DatasetUrn, Lease] = {TOPIC: leases[0], DatasetUrn("orders"): orders}
    assert set(check_logs(log.commits, local.fs, local.root, JOB, asked)) == {TOPIC}


def test_the_fence_of_each_lane_is_its_own(log: LogWorld, local: Place) -> None:
    first, second = two_lanes(log)
    for _time in range(2):
        log.leases.release([second])
        second = log.take_lane(second.lane_id)
    assert second.fence > first.fence
    publish(log, local, second)
    built = publish(log, local, first)
    check(log, local, first)

    # A fence that lane 1 has reached, and lane 0 never had.
    mark(log, local, built, fence=second.fence)

    with pytest.raises(LogBehindError):
        check(log, local, second)


def test_a_lane_that_the_log_does_not_have_stops_the_dataset(log: LogWorld, local: Place) -> None:
    other = open_simulated(SimDatabase())
    publish(other, local, two_lanes(other)[1])

    lease = log.take(log.register(TOPIC))
    with pytest.raises(LogBehindError):
        check(log, local, lease)


def test_the_newest_of_each_lane_are_kept(log: LogWorld, local: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_markers, "MARKERS_KEPT", 2)
    first, second = two_lanes(log)
    for _publication in range(4):
        publish(log, local, second)
    publish(log, local, first)
    # An open sequence, and its marker.
    mark(log, local, log.prepare(second, moves=[]))

    assert prune_markers(log.commits, local.fs, local.root, JOB, TOPIC) == 3

    assert [each[:2] for each in found(local)] == [(0, 1), (1, 4), (1, 5)]
    assert prune_markers(log.commits, local.fs, local.root, JOB, TOPIC) == 0
    check(log, local, first)


def test_an_abandoned_sequence_of_a_lane_leaves_no_marker(log: LogWorld, local: Place) -> None:
    first, second = two_lanes(log)
    publish(log, local, first)
    built = log.prepare(second, moves=[])
    mark(log, local, built)
    mark(log, local, built, fence=second.fence + 1)

    remove_markers(local.fs, local.root, log.commits.get(built.sequence_id))

    assert found(local) == [(0, 1, first.fence)]


def test_that_a_marker_of_a_lane_is_gone_survives_a_power_cut_also_if_another_removed_it() -> None:
    log, disk = open_simulated(SimDatabase()), SimDisk()
    disk.mkdir("/lake")
    fs = SimFileSystem(disk)
    _first, second = two_lanes(log)
    built = log.prepare(second, moves=[])
    (sealed,) = log.commits.load_sealed(built.sequence_id)
    put_markers(fs, "/lake", [(sealed, second.fence)])
    sync_markers(fs, "/lake", [sealed])
    (marker,) = list_markers(fs, "/lake", JOB, TOPIC)
    # Its process died before the removal was durable.
    fs.remove_file(marker.path, marker.identity)

    remove_markers(fs, "/lake", log.commits.get(built.sequence_id))
    disk.power_cut()

    assert list_markers(fs, "/lake", JOB, TOPIC) == []


@pytest.mark.parametrize("number", [0, 1])
def test_a_storage_without_a_trace_of_what_any_lane_published_stops_the_dataset(
    log: LogWorld, local: Place, number: int
) -> None:
    leases = two_lanes(log)
    log.publish(leases[number], moves=[])

    for lease in leases:
        with pytest.raises(StorageBehindError):
            check(log, local, lease)
