"""Destinations at their first use, and destinations that are not mounted: nothing is hidden, nothing is lost."""

import dataclasses
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gobblin_assets import failpoints
from gobblin_assets.commit.attempts import MARKERS_NAME
from gobblin_assets.commit.destination import IDENTITY_NAME, DestinationAwayError, read_identity
from gobblin_assets.errors import RejectedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.state import DatasetOutcome
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.run_values import RunReport
from tests.support.lake import JOB, Lake, World, start_worker
from tests.support.mounts import bound

pytestmark = pytest.mark.turns(of=4)


@contextmanager
def unmounted(lake: Lake) -> Iterator[Path]:
    """For the block, the root is the empty directory that a file system would be mounted on."""
    root, aside = Path(lake.root), Path(lake.directory, "not mounted")
    root.rename(aside)
    root.mkdir()
    try:
        yield root
    finally:
        shutil.rmtree(root)
        aside.rename(root)


def add_rows(lake: Lake, count: int = 4) -> None:
    for urn in lake.urns:
        lake.add_rows(urn, count)


def check_stopped(report: RunReport) -> None:
    assert {each.outcome for each in report.datasets} == {DatasetOutcome.BLOCKED}
    assert all("not mounted" in str(each.error) for each in report.datasets), [each.error for each in report.datasets]


# First use -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [Failpoint.DESTINATION_MARKED, Failpoint.DESTINATION_BOUND, Failpoint.SEAL_COMMITTED])
def test_a_first_run_killed_on_the_way_leaves_one_identity(lake: Lake, world: World, point: Failpoint) -> None:
    worker = start_worker(lake, failpoint=f"{point}=kill")
    assert worker.wait() == -signal.SIGKILL
    assert worker.reached()
    before = read_identity(*open_file_system(lake.root))
    assert before is not None
    world.expire_leases()

    assert not world.run().failed

    world.check_exactly_once()
    binding = world.stores.destinations.find(JobName(JOB))
    assert binding is not None
    assert (binding.identity, binding.root_uri) == (before, f"file://{lake.root}")
    assert read_identity(*open_file_system(lake.root)) == before


def test_two_first_runs_at_once_agree(lake: Lake, world: World) -> None:
    paused = start_worker(lake, failpoint=f"{Failpoint.DESTINATION_MARKED}=stop")
    paused.wait_until_stopped()
    assert not world.run().failed
    paused.wake_up()
    assert paused.wait() == 0
    world.check_exactly_once()
    assert [each.identity for each in world.stores.destinations.list_all()] == [
        read_identity(*open_file_system(lake.root))
    ]


def test_of_two_first_runs_at_different_roots_one_is_refused(lake: Lake, world: World) -> None:
    other = World(dataclasses.replace(lake, at="elsewhere"))

    began: list[Failpoint] = []

    def run_the_other(point: Failpoint) -> None:
        if point is Failpoint.DESTINATION_MARKED and not began:
            began.append(point)
            assert not other.run().failed

    with failpoints.install(run_the_other), pytest.raises(RejectedError, match="the log has the job crash at"):
        world.run()
    other.check_exactly_once()
    other.close()
    assert world.stored_files() == []
    assert world.staging_left() == []


# Not mounted ---------------------------------------------------------------------------------------------


def test_an_empty_mount_point_is_never_written_to(lake: Lake, world: World) -> None:
    assert not world.run().failed
    add_rows(lake)
    with unmounted(lake) as root:
        for mode in (Mode.APPEND, Mode.REFRESH):
            check_stopped(world.run(mode=mode))
        assert list(root.iterdir()) == []
    assert not world.run().failed
    world.check_exactly_once()


def test_a_file_system_that_is_really_unmounted_between_two_runs(lake: Lake, world: World) -> None:
    disk, root = Path(lake.directory, "disk"), Path(lake.root)
    disk.mkdir()
    with bound(disk, root):
        assert not world.run().failed
    add_rows(lake)
    check_stopped(world.run())
    assert list(root.iterdir()) == []
    with bound(disk, root):
        assert not world.run().failed
        world.check_exactly_once()


@pytest.mark.parametrize(
    "point",
    [
        Failpoint.SEQUENCE_BEGUN,
        Failpoint.ATTEMPT_WRITTEN,
        Failpoint.ATTEMPT_DURABLE,
        Failpoint.STAGED_BEFORE_SEAL,
        Failpoint.SEAL_COMMITTED,
        Failpoint.MARKER_WRITTEN,
        Failpoint.STEP_AFTER,
        Failpoint.EVENTS_BEFORE_CLEANUP,
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", [Mode.APPEND, pytest.param(Mode.REFRESH, marks=pytest.mark.thorough)], ids=str)
def test_a_file_system_that_goes_away_in_the_middle_of_a_run(
    lake: Lake, world: World, point: Failpoint, mode: Mode
) -> None:
    assert not world.run().failed
    add_rows(lake)
    left = []
    one_at_a_time = threading.Lock()

    def go_away(reached: Failpoint) -> None:
        # Steps are carried out by several threads.
        with one_at_a_time:
            if reached is point and not left:
                left.append(unmounted(lake))
                left[0].__enter__()

    with failpoints.install(go_away):
        world.run(mode=mode)
    assert left, "the failpoint was never reached"
    # A write that had begun may have continued below the mount point; nothing of it is published.
    assert not [path for path in Path(lake.root).rglob("*") if path.is_file() and ".staging" not in path.parts]
    check_stopped(world.run())
    left[0].__exit__(None, None, None)
    world.expire_leases()
    world.make_due()

    for _time in range(2):
        report = world.run(mode=mode)

    assert not report.failed, [each.error for each in report.failed]
    world.check_exactly_once()


def test_nothing_is_recovered_given_up_or_cleaned_while_it_is_away(lake: Lake, world: World) -> None:
    assert not world.run().failed
    add_rows(lake)
    worker = start_worker(lake, failpoint=f"{Failpoint.STEP_AFTER}=kill")
    assert worker.wait() == -signal.SIGKILL
    world.expire_leases()
    (sequence,) = world.stores.commits.list_open(JobName(JOB), limit=10)
    state = world.stores.datasets.load(JobName(JOB), [sequence.urn])[sequence.urn]
    operations = world.operations()
    with unmounted(lake) as root:
        report = operations.recover_due(None, on_publication=lambda _publication: None)
        assert [type(failure.error) for failure in report.failures] == [DestinationAwayError]
        with pytest.raises(DestinationAwayError):
            operations.abandon(sequence.sequence_id, reason="it is gone")
        with pytest.raises(DestinationAwayError):
            operations.clean(state, root_uri=lake.root, retire_grace_s=0.0)
        assert list(root.iterdir()) == []
        assert world.stores.commits.get(sequence.sequence_id).failed_tries == 0
    world.expire_leases()
    assert not world.run().failed
    world.check_exactly_once()


def test_another_destination_at_the_same_place_is_told(lake: Lake, world: World) -> None:
    assert not world.run().failed
    add_rows(lake)
    with unmounted(lake) as root:
        neighbour = World(dataclasses.replace(lake, job_name="neighbour"))
        assert not neighbour.run().failed
        neighbour.close()
        before = sorted(root.rglob("*"))
        report = world.run()
        assert "holds another destination" in str(report.datasets[0].error)
        check_stopped(report)
        assert sorted(root.rglob("*")) == before
    assert not world.run().failed
    for urn in lake.urns:
        assert world.rows_of(urn) == Counter(lake.source_rows(urn))


def test_a_root_whose_files_are_lost_stops_the_dataset(lake: Lake, world: World) -> None:
    assert not world.run().failed
    add_rows(lake)
    with unmounted(lake) as root:
        shutil.copy(Path(lake.directory, "not mounted", IDENTITY_NAME), root)
        report = world.run()
        assert {each.outcome for each in report.datasets} == {DatasetOutcome.BLOCKED}
        assert all("has no trace of any publication" in str(each.error) for each in report.datasets)
        assert [path.name for path in root.rglob("*") if path.is_file()] == [IDENTITY_NAME]
    assert not world.run().failed
    world.check_exactly_once()


def test_a_root_that_was_removed_before_anything_was_published_is_made_again(lake: Lake, world: World) -> None:
    worker = start_worker(lake, failpoint=f"{Failpoint.STAGED_BEFORE_SEAL}=kill")
    assert worker.wait() == -signal.SIGKILL
    shutil.rmtree(lake.root)
    world.expire_leases()
    assert not world.run().failed
    world.check_exactly_once()


# Earlier releases, backups ---------------------------------------------------------------------------------


@pytest.mark.parametrize("with_markers", [True, False], ids=["with markers", "without markers"])
def test_what_an_earlier_release_published_gets_an_identity(lake: Lake, world: World, with_markers: bool) -> None:
    assert not world.run().failed
    add_rows(lake)
    Path(lake.root, IDENTITY_NAME).unlink()
    if not with_markers:
        shutil.rmtree(Path(lake.root, JOB, MARKERS_NAME))
    world.execute("UPDATE gobblin.destination SET identity = NULL, root_uri = :uri", uri=lake.root + "/")
    with unmounted(lake) as root:
        check_stopped(world.run())
        assert list(root.iterdir()) == []
    assert not world.run().failed
    world.check_exactly_once()
    binding = world.stores.destinations.find(JobName(JOB))
    assert binding is not None
    assert binding.identity == read_identity(*open_file_system(lake.root))


def test_a_destination_that_comes_back_from_a_backup_is_the_same(lake: Lake, world: World) -> None:
    assert not world.run().failed
    add_rows(lake)
    backup = Path(lake.directory, "backup")
    shutil.copytree(lake.root, backup)
    shutil.rmtree(lake.root)
    shutil.copytree(backup, lake.root)
    assert not world.run().failed
    assert world.published_rows(lake.urns[0]) == Counter(lake.source_rows(lake.urns[0]))
