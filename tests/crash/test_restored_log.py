"""A Postgres that is restored to an earlier moment: the storage knows more than the log, and nothing may run on."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_assets.commit.attempts import MARKERS_NAME
from gobblin_assets.commit.markers import MARKERS_KEPT, LogBehindError, Marker, decode_marker, list_markers
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.errors import ConflictError, CorruptionError
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.state import DatasetOutcome
from gobblin_assets.model.urn import DatasetUrn, JobName
from tests.support.lake import JOB, URNS, Lake, World, start_worker
from tests.support.restoring import Backup, backups
from tests.support.table_lake import with_stores

pytestmark = pytest.mark.turns(of=4)

LOST, OTHER = URNS


@pytest.fixture
def backup(server: EmbeddedServer) -> Iterator[Backup]:
    with backups(server) as take:
        yield take


def publish_more(world: World, *urns: str, runs: int = 1, mode: Mode = Mode.APPEND) -> None:
    for _run in range(runs):
        for urn in urns:
            world.lake.add_rows(urn, 5)
        assert not world.run(urns=urns, mode=mode).failed


def kill(lake: Lake, failpoint: str, mode: Mode = Mode.APPEND) -> None:
    worker = start_worker(lake, failpoint=f"{failpoint}=kill", mode=mode)
    assert worker.wait() == -signal.SIGKILL
    assert worker.reached()


def sealed_by_nobody(world: World) -> object:
    return world.scalar("SELECT count(*) FROM gobblin.commit_sequence WHERE digest IS NOT NULL")


@with_stores
@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.REFRESH])
@pytest.mark.parametrize("runs", [1, 3])
def test_a_dataset_with_publications_that_the_log_forgot_is_stopped_and_the_others_go_on(
    world: World, backup: Backup, runs: int, mode: Mode
) -> None:
    world.run()
    restored = backup(world)
    publish_more(world, LOST, runs=runs, mode=mode)
    before = restored.stored_files()
    sealed = sealed_by_nobody(restored)
    restored.lake.add_rows(OTHER, 4)

    report = restored.run()

    (stopped,) = report.failed
    assert (stopped.urn, stopped.outcome, stopped.error_family) == (LOST, DatasetOutcome.BLOCKED, "ConflictError")
    assert stopped.error is not None
    assert f"{runs} of its publications" in stopped.error
    assert "restored from an older backup" in stopped.error
    assert f"gobblin-assets reconcile JOB_FILE --dataset '{LOST}'" in stopped.error
    assert any(stopped.error == line for line in restored.lines), "the run's log does not say why"
    assert restored.watermark(LOST) == 13
    assert restored.watermark(OTHER) == 17
    assert sealed_by_nobody(restored) == int(str(sealed)) + 1, "only the other dataset published"
    assert set(before) - set(restored.stored_files()) == set(), "something was removed"


def test_a_log_without_any_memory_of_the_dataset_is_stopped_too(world: World, backup: Backup) -> None:
    restored = backup(world)
    publish_more(world, LOST)

    report = restored.run()

    assert [(each.urn, each.outcome) for each in report.failed] == [(LOST, DatasetOutcome.BLOCKED)]
    assert restored.watermark(OTHER) == 13


@pytest.mark.parametrize("point", ["sequence_begun", "stage_committed", "staged_before_seal"])
def test_a_sequence_that_the_restored_log_has_unsealed_is_not_aborted(
    lake: Lake, world: World, backup: Backup, point: str
) -> None:
    """It was sealed and published in the lost history, so aborting it would read its rows again."""
    worker = start_worker(lake, failpoint=f"{point}=stop")
    worker.wait_until_stopped()
    world.engine.dispose()
    restored = None
    try:
        restored = _while_it_sleeps(world, backup)
    finally:
        worker.wake_up()
    assert worker.wait() == 0
    restored.expire_leases()

    report = restored.run()

    assert {each.outcome for each in report.failed} == {DatasetOutcome.BLOCKED}
    assert restored.scalar("SELECT count(*) FROM gobblin.commit_sequence WHERE state = 'ABORTED'") == 0
    assert {each.urn for each in report.failed} == set(URNS)


def _while_it_sleeps(world: World, backup: Backup) -> World:
    """The sleeper's connections are between two transactions; they must be gone for the copy."""
    world.scalar(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    return backup(world)


@with_stores
def test_a_sensor_does_not_carry_on_what_an_older_log_has_open(lake: Lake, world: World, backup: Backup) -> None:
    kill(lake, "seal_committed")
    world.expire_leases()
    restored = backup(world)
    publish_more(world, *URNS)
    before = restored.stored_files()

    report = restored.operations().recover_due(None, on_publication=lambda _publication: None)

    (failure,) = report.failures
    assert isinstance(failure.error, LogBehindError)
    sequence = restored.stores.commits.get(failure.sequence.sequence_id)
    assert (sequence.state, sequence.failed_tries) == ("PREPARED", 0)
    assert restored.stored_files() == before


@with_stores
@pytest.mark.parametrize("call", ["resume", "abandon"])
def test_nor_does_a_person(lake: Lake, world: World, backup: Backup, call: str) -> None:
    kill(lake, "seal_committed")
    world.expire_leases()
    restored = backup(world)
    publish_more(world, *URNS)
    (sequence,) = restored.stores.commits.list_open(None, limit=10)
    before = restored.stored_files()
    calls = {
        "resume": lambda: restored.operations().resume(sequence.sequence_id),
        "abandon": lambda: restored.operations().abandon(sequence.sequence_id, reason="a test"),
    }

    with pytest.raises(ConflictError, match="restored from an older backup"):
        calls[call]()

    assert restored.stores.commits.get(sequence.sequence_id).state == "PREPARED"
    assert restored.stored_files() == before


@with_stores
def test_a_fence_that_went_back_stops_the_dataset(lake: Lake, world: World, backup: Backup) -> None:
    """Its sequences are all known: one was sealed before the backup, and executed under a newer fence after it."""
    kill(lake, "sealed_before_execute")
    world.expire_leases()
    restored = backup(world)
    for _taken in range(3):
        kill(lake, "lease_taken")
        world.expire_leases()
    world.run()

    report = restored.run()

    (stopped,) = [each for each in report.failed if each.urn == min(URNS)]
    assert stopped.outcome is DatasetOutcome.BLOCKED


@with_stores
def test_an_abandoned_sequence_leaves_no_marker_that_would_claim_its_version(lake: Lake, world: World) -> None:
    kill(lake, "step_after")
    world.expire_leases()
    (sequence,) = world.stores.commits.list_open(None, limit=10)
    assert [marker.sequence_id for marker in markers_of(world, sequence.urn)] == [sequence.sequence_id]

    world.operations().abandon(sequence.sequence_id, reason="a test")

    assert markers_of(world, sequence.urn) == []
    world.run()
    world.check_exactly_once()


@with_stores
def test_only_the_newest_markers_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MARKERS_KEPT > 3
    monkeypatch.setattr("gobblin_assets.commit.markers.MARKERS_KEPT", 3)
    publish_more(world, *URNS, runs=5)

    versions = [marker.version for marker in markers_of(world, DatasetUrn(LOST))]

    assert versions == [3, 4, 5]
    assert not world.run().failed
    world.check_exactly_once()


def test_a_marker_says_all_that_was_sealed_and_no_byte_of_it_may_change(world: World) -> None:
    world.run(mode=Mode.REFRESH)
    (marker,) = markers_of(world, DatasetUrn(LOST))
    content = Path(marker.path).read_bytes()

    sealed = decode_marker(content, marker.path)

    stored = world.stores.commits.load_sealed(marker.sequence_id)[0]
    assert sealed.attempts == stored.attempts
    assert (sealed.job, sealed.urn, sealed.mode, sealed.replaces) == (JOB, LOST, Mode.REFRESH, True)
    assert (sealed.order.moves, sealed.order.digest, sealed.version) == (stored.order.moves, stored.order.digest, 1)
    assert world.lake.root not in str(sealed.order.details.get("root_uri"))
    for changed in (content[:-20], content.replace(b'"base_version":0', b'"base_version":1'), b"", b"[]"):
        with pytest.raises(CorruptionError, match="marker"):
            decode_marker(changed, marker.path)


def test_readers_of_the_directory_never_see_markers(world: World) -> None:
    world.run()
    found = [path for path in Path(world.lake.root).rglob("*") if MARKERS_NAME in path.parts and path.is_file()]
    assert len(found) == 2
    assert all(path.relative_to(world.lake.root).parts[1].startswith(".") for path in found)


def markers_of(world: World, urn: DatasetUrn) -> list[Marker]:
    fs, root = open_file_system(world.lake.root)
    return list_markers(fs, root, JobName(JOB), urn)
