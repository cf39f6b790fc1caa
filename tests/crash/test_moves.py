"""Jobs whose file names another root, and jobs that move there: nothing is lost, nothing is removed."""

import dataclasses
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from gobblin_assets import failpoints
from gobblin_assets.commit.attempts import MARKERS_NAME
from gobblin_assets.commit.destination import IDENTITY_NAME
from gobblin_assets.commit.relocation import Moved, Relocation
from gobblin_assets.errors import ConflictError, GobblinError, RejectedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from tests.crash.test_destinations import add_rows, check_stopped
from tests.support.forks import FORKS
from tests.support.lake import JOB, Lake, World, start_worker
from tests.support.workers import Worker

pytestmark = pytest.mark.turns(of=4)

OF_MOVING = (Failpoint.DESTINATION_MOVED,)


def relocate(world: World, root: str, *, files_are_lost: bool = False) -> Moved:
    stores = world.stores
    relocation = Relocation(world.operations(), stores.destinations, stores.datasets, stores.published)
    return relocation.move(JobName(JOB), root, files_are_lost=files_are_lost)


def test_a_job_file_with_another_root_is_refused_and_cleans_nothing(lake: Lake, world: World) -> None:
    assert not world.run().failed
    world.run(mode=Mode.REFRESH)
    before = world.stored_files()
    other = World(dataclasses.replace(lake, at="elsewhere"))
    for mode in (Mode.APPEND, Mode.REFRESH):
        with pytest.raises(RejectedError, match="the log has the job crash at file://") as refused:
            other.run(mode=mode)
        assert "Give this job another name" in refused.value.hint
        assert "gobblin-assets destination move crash file://" in refused.value.hint
    state = world.stores.datasets.load(JobName(JOB), [DatasetUrn(lake.urns[0])])[DatasetUrn(lake.urns[0])]
    with pytest.raises(RejectedError):
        other.operations().clean(state, root_uri=other.lake.root, retire_grace_s=0.0)
    assert world.stored_files() == before
    assert not Path(other.lake.root).exists()
    other.close()


@pytest.mark.parametrize("inside", ["crash", "crash/data", "crash/deep/er"])
def test_a_destination_in_anothers_data_is_refused(lake: Lake, world: World, inside: str) -> None:
    assert not world.run().failed
    nested = World(dataclasses.replace(lake, at=f"lake/{inside}", job_name="nested"))
    with pytest.raises(RejectedError, match="lies inside of the data of the job crash"):
        nested.run()
    nested.close()
    beside = World(dataclasses.replace(lake, job_name="beside"))
    assert not beside.run().failed
    beside.close()
    for urn in lake.urns:
        assert world.rows_of(urn) == Counter(lake.source_rows(urn))


@pytest.mark.parametrize("how", ["moved", "copied"])
def test_a_job_moves_with_its_files(lake: Lake, world: World, how: str) -> None:
    assert not world.run().failed
    world.run(mode=Mode.REFRESH)
    add_rows(lake)
    assert not world.run().failed
    there = World(dataclasses.replace(lake, at="elsewhere"))
    with pytest.raises(RejectedError, match="are not at file://"):
        relocate(world, there.lake.root)
    if how == "moved":
        Path(lake.root).rename(there.lake.root)
    else:
        shutil.copytree(lake.root, there.lake.root)

    moved = relocate(world, there.lake.root)

    assert (moved.old_uri, moved.new_uri) == (f"file://{lake.root}", f"file://{there.lake.root}")
    add_rows(lake)
    assert not there.run().failed
    for urn in lake.urns:
        assert there.rows_of(urn) == Counter(lake.source_rows(urn))
    # Files of a replaced generation are removed as well, although the copies have other inodes.
    assert not there.run(mode=Mode.REFRESH).failed
    there.run()
    files = [path for path in there.stored_files() if not path.endswith(IDENTITY_NAME)]
    active = [
        file.path
        for urn in lake.urns
        for segment in there.stores.published.find(JobName(JOB), DatasetUrn(urn), role=Role.DATA).segments  # type: ignore[union-attr]  # it is there
        for file in segment.files()
    ]
    assert files == sorted(active)
    Path(lake.root).mkdir(exist_ok=True)
    with pytest.raises(RejectedError, match="the log has the job crash at"):
        world.run()
    there.close()


@pytest.mark.parametrize("fault", ["missing", "short", "no markers"])
def test_a_move_is_refused_where_something_did_not_come_along(lake: Lake, world: World, fault: str) -> None:
    assert not world.run().failed
    target = Path(lake.directory, "elsewhere")
    shutil.copytree(lake.root, target)
    if fault == "no markers":
        shutil.rmtree(target / JOB / MARKERS_NAME)
    else:
        file = min(target.rglob("data/**/*.parquet"))
        file.unlink() if fault == "missing" else file.write_bytes(b"short")
    with pytest.raises(RejectedError):
        relocate(world, str(target))
    assert not world.run().failed
    world.check_exactly_once()


def test_a_move_waits_for_what_is_open(lake: Lake, world: World) -> None:
    worker = start_worker(lake, failpoint=f"{Failpoint.STEP_AFTER}=kill")
    assert worker.wait() == -signal.SIGKILL
    with pytest.raises(ConflictError, match="is being worked on"):
        relocate(world, str(Path(lake.directory, "elsewhere")))
    world.expire_leases()
    with pytest.raises(ConflictError, match="publications of crash are open"):
        relocate(world, str(Path(lake.directory, "elsewhere")))
    world.expire_leases()
    assert not world.run().failed
    world.check_exactly_once()


def _move(lake: Lake, root: str, failpoint: str, log: str) -> None:
    failpoints.arm(failpoint, log)
    relocate(World(lake), root)


@pytest.mark.parametrize("point", [Failpoint.LEASE_TAKEN, *OF_MOVING], ids=str)
def test_a_move_killed_anywhere_has_happened_or_not(lake: Lake, world: World, point: Failpoint) -> None:
    assert not world.run().failed
    there = World(dataclasses.replace(lake, at="elsewhere"))
    shutil.copytree(lake.root, there.lake.root)
    log = Path(lake.directory, "move.log")
    process = FORKS.Process(target=_move, args=(lake, there.lake.root, f"{point}=kill", str(log)))
    process.start()
    worker = Worker(process, log)
    assert worker.wait() == -signal.SIGKILL
    assert worker.reached()
    world.expire_leases()

    has_moved = point is Failpoint.DESTINATION_MOVED
    right, wrong = (there, world) if has_moved else (world, there)
    with pytest.raises(RejectedError):
        wrong.run()
    add_rows(lake)
    assert not right.run().failed
    for urn in lake.urns:
        assert right.rows_of(urn) == Counter(lake.source_rows(urn))
    relocate(world, there.lake.root) if has_moved else None
    there.close()


def test_files_that_are_lost_come_back_by_a_refresh(lake: Lake, world: World) -> None:
    assert not world.run().failed
    shutil.rmtree(lake.root)
    Path(lake.root).mkdir()
    check_stopped(world.run())
    with pytest.raises(RejectedError, match="is not there"):
        relocate(world, lake.root)

    relocate(world, lake.root, files_are_lost=True)

    with pytest.raises((GobblinError, OSError)):
        world.rows_of(lake.urns[0])
    assert not world.run(mode=Mode.REFRESH).failed
    for urn in lake.urns:
        assert world.rows_of(urn) == Counter(lake.source_rows(urn))
