"""A right of the runs' user on the destination is taken away half-way, and given back later."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from gobblin_assets.commit.attempts import staging_root
from gobblin_assets.commit.markers import marker_directory
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.path_names import job_directory, path_of
from gobblin_assets.model.state import DatasetOutcome
from gobblin_assets.model.urn import DatasetUrn, JobName
from tests.support.lake import JOB, URNS, Lake, World
from tests.support.ordinary_user import Loss, OrdinaryUser, Ran, RefusedError, abandon, ordinary_user, recover, run
from tests.support.postgres import make_reachable_directory
from tests.support.shares import cross

pytestmark = pytest.mark.turns(of=4)

LOSER, OTHER = URNS
FIX = "Give the user that runs this the right to read, write and search there."
NO_WRITE, NO_READ, NO_SEARCH, NOTHING = 0o555, 0o333, 0o666, 0o000
BEFORE, MORE = 13, 7


@pytest.fixture(scope="module")
def user() -> Iterator[OrdinaryUser]:
    with ordinary_user() as made:
        yield made


@pytest.fixture
def lake(server: EmbeddedServer, database_url: str, user: OrdinaryUser) -> Iterator[Lake]:
    """A lake with one publication of each dataset, and rows for the next."""
    directory = make_reachable_directory("gobblin-permission-")
    made = Lake(user.url_of(server, database_url, directory), str(directory))
    Path(made.root).mkdir()
    for path in (directory, Path(made.root)):
        user.own(path)
    for count in (BEFORE, MORE):
        for urn in made.urns:
            made.add_rows(urn, count)
        if count == BEFORE:
            assert committed(user.do(run, made)) == set(URNS)
    yield made
    shutil.rmtree(directory)


@pytest.fixture
def world(lake: Lake) -> Iterator[World]:
    """For looking only: its files would belong to root."""
    opened = World(lake)
    yield opened
    opened.close()


def dataset_directory(lake: Lake) -> str:
    return path_of(lake.root, JobName(JOB), DatasetUrn(LOSER))


def markers_of(lake: Lake) -> str:
    return marker_directory(lake.root, JobName(JOB), DatasetUrn(LOSER))


def job_of(lake: Lake) -> str:
    return job_directory(lake.root, JobName(JOB))


def staging_of(lake: Lake) -> str:
    return staging_root(job_of(lake))


def give_back(directory: str) -> None:
    Path(directory).chmod(0o755)


def committed(ran: Ran) -> set[str]:
    return {urn for urn, report in ran.datasets.items() if report.outcome == DatasetOutcome.COMMITTED}


def check_rejected(ran: Ran, action: str, path: str) -> None:
    """The report of the dataset that lost the right says which right and where; the other dataset was published."""
    assert ran.was_lost, "the place was never reached"
    assert committed(ran) == {OTHER}
    failed = ran.datasets[LOSER]
    assert (failed.outcome, failed.error_family) == (DatasetOutcome.FAILED, "RejectedError")
    assert failed.error is not None
    assert f"can't {action} " in failed.error
    assert path in failed.error
    assert "EACCES" in failed.error
    assert FIX in failed.error


def open_sequences(world: World) -> list[str]:
    return [str(sequence.state) for sequence in world.stores.commits.list_open(None, limit=10)]


# By the moment and the lost right, the action that fails. Both datasets have two steps; the other one goes first.
AFTER_THE_SEAL = {
    "before the first step": (dataset_directory, Failpoint.SEALED_BEFORE_EXECUTE, 1, NO_WRITE, "rename"),
    "between two steps": (dataset_directory, Failpoint.STEP_AFTER, 3, NO_WRITE, "rename"),
    "at the sync": (dataset_directory, Failpoint.EXECUTED_BEFORE_SYNC, 2, NO_READ, "sync"),
    "at the verification": (dataset_directory, Failpoint.SYNCED_BEFORE_VERIFY, 2, NO_SEARCH, "look at"),
    "at the marker": (markers_of, Failpoint.SEALED_BEFORE_EXECUTE, 1, NO_WRITE, "write"),
    "at the marker, entirely": (markers_of, Failpoint.SEALED_BEFORE_EXECUTE, 1, NOTHING, "write"),
}


@pytest.mark.parametrize(("repair", "loss"), cross(("run", "sensor"), tuple(AFTER_THE_SEAL)))
def test_what_was_sealed_waits_for_the_right_and_is_then_completed(
    lake: Lake, world: World, user: OrdinaryUser, loss: str, repair: str
) -> None:
    directory_of, point, count, mode, action = AFTER_THE_SEAL[loss]
    directory = directory_of(lake)

    check_rejected(user.do(run, lake, Loss(point, directory, mode, count)), action, directory)
    assert open_sequences(world) == ["PREPARED"]
    assert world.watermark(LOSER) == BEFORE

    again = user.do(run, lake)
    assert committed(again) == {OTHER}
    assert again.datasets[LOSER].error_family == "RejectedError"
    assert "EACCES" in str(again.datasets[LOSER].error)
    assert open_sequences(world) == ["PREPARED"], "it was tried again, and can be once more"

    give_back(directory)
    if repair == "run":
        assert committed(user.do(run, lake)) == set(URNS)
    else:
        with world.engine.begin() as connection:
            connection.execute(text("UPDATE gobblin.commit_sequence SET next_try_at = NULL"))
        assert user.do(recover, lake) == []
        assert open_sequences(world) == []
        assert committed(user.do(run, lake)) == set(URNS)
    world.check_exactly_once()


def test_a_dataset_whose_markers_cannot_be_read_is_not_run(lake: Lake, world: World, user: OrdinaryUser) -> None:
    """Markers are read first; a failure to read them does not mean that there are none."""
    markers = markers_of(lake)

    ran = user.do(run, lake, Loss(Failpoint.LEASE_TAKEN, markers, NOTHING))

    check_rejected(ran, "list", markers)
    assert open_sequences(world) == []
    assert world.watermark(LOSER) == BEFORE
    give_back(markers)
    assert committed(user.do(run, lake)) == set(URNS)
    world.check_exactly_once()


def test_a_sensor_does_not_complete_what_it_cannot_ask_storage_about(
    lake: Lake, world: World, user: OrdinaryUser
) -> None:
    dataset, markers = dataset_directory(lake), markers_of(lake)
    user.do(run, lake, Loss(Failpoint.STEP_AFTER, dataset, NO_WRITE, 3))
    give_back(dataset)
    Path(markers).chmod(NOTHING)
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE gobblin.commit_sequence SET next_try_at = NULL"))

    (said,) = user.do(recover, lake)

    assert f"can't list {markers}" in said
    assert open_sequences(world) == ["PREPARED"]
    give_back(markers)
    assert committed(user.do(run, lake)) == set(URNS)
    world.check_exactly_once()


def test_staging_that_cannot_be_made_durable_publishes_nothing(lake: Lake, world: World, user: OrdinaryUser) -> None:
    staging = staging_of(lake)

    ran = user.do(run, lake, Loss(Failpoint.ATTEMPT_WRITTEN, staging, NO_READ))

    assert ran.was_lost
    assert {report.error_family for report in ran.datasets.values()} == {"RejectedError"}
    assert all(f"can't sync {staging}" in str(report.error) for report in ran.datasets.values())
    assert [world.watermark(urn) for urn in URNS] == [BEFORE, BEFORE]
    give_back(staging)
    assert committed(user.do(run, lake)) == set(URNS)
    world.check_exactly_once()


def test_a_destination_that_cannot_be_written_is_refused_before_anything_is_read(
    lake: Lake, world: World, user: OrdinaryUser
) -> None:
    Path(job_of(lake)).chmod(NO_WRITE)

    with pytest.raises(RefusedError, match=r"destination: can't .* EACCES") as refused:
        user.do(run, lake)

    assert refused.value.family == "RejectedError"
    assert job_of(lake) in refused.value.said
    assert FIX in refused.value.said
    give_back(job_of(lake))
    assert committed(user.do(run, lake)) == set(URNS)
    world.check_exactly_once()


def test_staging_that_cannot_be_cleaned_is_cleaned_by_the_next_run(
    lake: Lake, world: World, user: OrdinaryUser
) -> None:
    """The attempts' directories stay there, empty, after their files were published."""
    staging = staging_of(lake)

    ran = user.do(run, lake, Loss(Failpoint.EVENTS_BEFORE_CLEANUP, staging, NO_WRITE))

    assert ran.was_lost
    assert committed(ran) == set(URNS)
    assert [line for line in ran.lines if "cleanup is left to the next run" in line and staging in line]
    assert world.staging_left() != []
    give_back(staging)
    assert committed(user.do(run, lake)) == set(URNS)
    world.check_exactly_once()


def test_a_retired_generation_that_cannot_be_removed_is_removed_later(
    lake: Lake, world: World, user: OrdinaryUser
) -> None:
    old = world.published_paths(LOSER)
    directory = str(Path(old[0]).parent)

    ran = user.do(run, lake, Loss(Failpoint.EVENTS_BEFORE_CLEANUP, directory, NO_WRITE), Mode.REFRESH)

    assert ran.was_lost
    assert committed(ran) == set(URNS)
    assert [line for line in ran.lines if "cleanup is left to the next run" in line and directory in line]
    assert set(old) & set(world.stored_files())
    assert not set(old) & set(world.published_paths(LOSER)), "readers of the ledger no longer see it"
    give_back(directory)
    assert committed(user.do(run, lake)) == set(URNS)
    world.check_exactly_once()


def test_an_abandonment_waits_for_the_right_to_take_files_back(lake: Lake, world: World, user: OrdinaryUser) -> None:
    directory = dataset_directory(lake)
    user.do(run, lake, Loss(Failpoint.STEP_AFTER, directory, NO_WRITE, 3))
    (sequence,) = world.stores.commits.list_open(None, limit=10)
    visible = world.stored_files()

    with pytest.raises(RefusedError, match="EACCES") as refused:
        user.do(abandon, lake, sequence.sequence_id)

    assert refused.value.family == "RejectedError"
    assert directory in refused.value.said
    assert open_sequences(world) == ["ABANDONING"]
    assert [path for path in visible if path.startswith(directory)] == [
        path for path in world.stored_files() if path.startswith(directory)
    ], "nothing visible was lost"
    give_back(directory)
    assert committed(user.do(run, lake)) == set(URNS)
    assert world.stores.commits.get(sequence.sequence_id).state == "ABORTED"
    world.check_exactly_once()
