"""A fold that is killed, paused past its lease, or not acknowledged: readers and the log see the same as before."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from gobblin_assets.commit.examination import Examination
from gobblin_assets.commit.folding import FoldBounds
from gobblin_assets.commit.markers import list_markers
from gobblin_assets.commit.published.current import list_current
from gobblin_assets.commit.published.verification import Verification, VerificationProgress
from gobblin_assets.destinations.fixed_names.trash import Trash
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from tests.support.copy_lake import REMOVED, CopyLake, CopyWorld, files_of
from tests.support.lake import JOB, Lake, World, start_worker
from tests.support.table_lake import with_stores

pytestmark = pytest.mark.turns(of=4)

OF_A_FOLD = (Failpoint.FOLD_SEGMENTS_JOINED, Failpoint.FOLD_COMMITTED)
KILLED = -signal.SIGKILL


@pytest.fixture
def folding(lake: Lake, world: World) -> Lake:
    """Three publications of each dataset, and rows for one more, after which all are folded."""
    for _publication in range(3):
        world.run()
        for urn in lake.urns:
            lake.add_rows(urn, 4)
    return replace(lake, folds=True)


def count_folds(world: World) -> object:
    return world.scalar("SELECT count(*) FROM gobblin.commit_sequence WHERE publication_count > 1")


def check_nothing_is_strange(world: World) -> None:
    """Check that `verify` and `reconcile` report nothing on any dataset."""
    job, clock = JobName(JOB), SystemClock()
    fs, root = open_file_system(world.lake.root)
    stores = world.stores
    progress = VerificationProgress(clock, lambda _line: None)
    verification = Verification(stores.commits, stores.published, open_file_system, world.lake.root, job, progress)
    examination = Examination(stores.commits, stores.datasets, stores.published, fs, root, job)
    for urn in map(DatasetUrn, world.lake.urns):
        dataset_id = stores.datasets.load(job, [urn])[urn].dataset_id
        assert verification.verify(urn, dataset_id, checksums=True).faults == []
        finding = examination.look_at(urn, thoroughly=True)
        assert (finding.forgotten, finding.missing, finding.is_behind) == ((), (), False)


@with_stores
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("point", OF_A_FOLD, ids=str)
def test_a_killed_fold_is_whole_or_nothing(folding: Lake, world: World, point: Failpoint, count: int) -> None:
    worker = start_worker(folding, failpoint=f"{point}=kill@{count}")
    assert worker.wait() == KILLED
    assert worker.reached()
    world.check_exactly_once()
    check_nothing_is_strange(world)
    world.expire_leases()

    folder = World(folding)
    folder.run()
    folder.run()
    folder.close()

    world.check_exactly_once()
    check_nothing_is_strange(world)
    assert count_folds(world) == len(folding.urns)


def test_a_fold_that_is_not_acknowledged_is_done_once(folding: Lake, world: World) -> None:
    worker = start_worker(folding, failpoint=f"{Failpoint.FOLD_COMMITTED}=lose")
    assert worker.wait() == 0
    assert worker.reached()

    world.check_exactly_once()
    check_nothing_is_strange(world)
    assert count_folds(world) == len(folding.urns)


@with_stores
def test_who_is_paused_past_the_lease_folds_nothing_any_more(folding: Lake, world: World) -> None:
    """It wakes up between two folds, after others have refreshed all that it was going to fold."""
    worker = start_worker(folding, failpoint=f"{Failpoint.FOLD_COMMITTED}=stop")
    worker.wait_until_stopped()
    world.expire_leases()
    world.run(mode=Mode.REFRESH)
    before = world.scalar("SELECT count(*) FROM gobblin.commit_sequence")

    worker.wake_up()
    worker.wait()

    assert world.scalar("SELECT count(*) FROM gobblin.commit_sequence") == before
    world.check_exactly_once()
    check_nothing_is_strange(world)


def test_a_reader_whose_list_is_from_before_the_fold_finds_its_files(folding: Lake, world: World) -> None:
    paths = {urn: world.published_paths(urn) for urn in folding.urns}
    folder = World(folding)
    folder.run()
    folder.close()

    for urn in folding.urns:
        assert set(paths[urn]) < set(world.published_paths(urn))
        assert all(Path(path).exists() for path in paths[urn])


@with_stores
def test_what_was_folded_is_refreshed_and_forgotten(folding: Lake, world: World) -> None:
    folder = World(folding)
    folder.run()
    folder.run(mode=Mode.REFRESH)
    with world.engine.begin() as connection:
        for table, column in (("commit_sequence", "done_at"), ("segment", "removed_at")):
            connection.exec_driver_sql(f"UPDATE gobblin.{table} SET {column} = {column} - interval '1000 days'")

    for urn in map(DatasetUrn, folding.urns):
        state = folder.stores.datasets.load(JobName(JOB), [urn])[urn]
        fs, root = open_file_system(folding.root)
        for marker in list_markers(fs, root, JobName(JOB), urn)[:-1]:
            fs.remove_file(marker.path, marker.identity)
        bounds = FoldBounds(keep=0, count_min=0, age_s=0.0, keep_marked=0)
        folder.operations().clean(state, root_uri=folding.root, retire_grace_s=0.0, fold=bounds)
    folder.close()

    world.check_exactly_once()
    check_nothing_is_strange(world)
    assert world.scalar("SELECT count(*) FROM gobblin.commit_sequence") == len(folding.urns)
    assert world.scalar("SELECT count(*) FROM gobblin.past_sequence") == 0


@pytest.fixture
def folding_copies(database_url: str, tmp_path: Path) -> CopyLake:
    """Two publications of each dataset, with empty slots; the source has changed. From here on, all is folded."""
    lake = CopyLake(database_url, str(tmp_path), trash_keep_s=0.0)
    lake.make_source()
    world = lake.open_world()
    for change in (lake.change_source, lake.change_again):
        assert not world.run().failed
        change()
    world.close()
    return replace(lake, options={"log": {"fold_keep": 0, "fold_min": 1, "fold_age_s": 0.0}})


@pytest.mark.parametrize("point", OF_A_FOLD, ids=str)
def test_a_killed_fold_of_copies_is_whole_or_nothing(folding_copies: CopyLake, point: Failpoint) -> None:
    worker = start_worker(folding_copies, failpoint=f"{point}=kill")
    assert worker.wait() == KILLED
    assert worker.reached()
    world = folding_copies.open_world()
    check_copies_are_as_published(world)
    world.expire_leases()

    assert not world.run().failed

    check_copies_are_as_published(world)
    assert count_folds(world) == len(folding_copies.urns)
    assert world.scalar("SELECT count(*) FROM gobblin.commit_sequence WHERE state = 'DONE'") == 2
    # What was published before the fold is ours: it may be removed.
    (folding_copies.source / REMOVED).unlink()
    assert not world.run().failed
    check_copies_are_as_published(world)
    world.close()


def check_copies_are_as_published(world: CopyWorld) -> None:
    """Check that both trees are the same, and that `verify`, `reconcile` and `trash` show nothing."""
    world.check_trees()
    job, stores, root_uri = JobName(JOB), world.stores, world.lake.root
    fs, root = open_file_system(root_uri)
    progress = VerificationProgress(SystemClock(), lambda _line: None)
    verification = Verification(stores.commits, stores.published, open_file_system, root_uri, job, progress)
    examination = Examination(stores.commits, stores.datasets, stores.published, fs, root, job)
    paths = set()
    for urn in map(DatasetUrn, world.lake.urns):
        dataset_id = stores.datasets.load(job, [urn])[urn].dataset_id
        verified = verification.verify(urn, dataset_id, checksums=False)
        assert verified.faults == []
        finding = examination.look_at(urn, thoroughly=True)
        assert (finding.forgotten, finding.is_behind) == ((), False)
        assert list(Trash(stores.commits, stores.published, open_file_system, job).list_files(urn)) == []
        view = stores.published.find(job, urn, role=Role.DATA)
        assert view is not None
        paths |= {file.path for _segment, file in list_current(view.segments)}
    assert paths == {f"{root}/{name}" for name in files_of(world.lake.tree)}
