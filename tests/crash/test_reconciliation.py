"""A restored log is reconciled with its storage, in both ways, from any point at which it was left."""

import dataclasses
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from gobblin_assets.commit.attempts import SET_ASIDE_NAME
from gobblin_assets.commit.reconciliation import Way
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.errors import ConflictError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.state import DatasetOutcome, SequenceId
from tests.support.lake import URNS, Lake, World, start_worker
from tests.support.restoring import Backup, backups, examine, reconcile, start_reconciliation
from tests.support.shares import cross, rotating
from tests.support.table_lake import with_objects, with_stores

pytestmark = pytest.mark.turns(of=4)

LOST, OTHER = URNS
WAYS = tuple(Way)
# By the point at which a run is killed: what the log has of its sequence, and what storage has.
LEFT_OPEN = {
    "sequence_begun": "BUILDING",
    "staged_before_seal": "BUILDING",
    "sealed_before_execute": "PREPARED",
    "marker_written": "PREPARED",
    "step_after": "PREPARED",
}
OF_EACH_LOST_SEQUENCE = (
    Failpoint.SEQUENCE_BEGUN,
    Failpoint.LOST_SEQUENCE_BEGUN,
    Failpoint.ATTEMPT_REGISTERED,
    Failpoint.STAGE_COMMITTED,
    Failpoint.SEAL_COMMITTED,
    Failpoint.LOST_SEQUENCE_SEALED,
    Failpoint.FINISH_COMMITTED,
    Failpoint.LOST_SEQUENCE_ADOPTED,
)
# Only the last lost sequence is verified; it replaced the ones before it.
OF_EXECUTION = (
    Failpoint.SEALED_BEFORE_EXECUTE,
    Failpoint.MARKER_WRITTEN,
    Failpoint.EXECUTED_BEFORE_SYNC,
    Failpoint.VERIFIED_BEFORE_FINISH,
)
OF_ADOPTION = (Failpoint.FENCE_RAISED, Failpoint.LEASE_TAKEN, *OF_EACH_LOST_SEQUENCE, *OF_EXECUTION)
ADOPTION_KILLS = [
    *((point, 1) for point in OF_ADOPTION),
    *(rotating(point, 2) for point in OF_EACH_LOST_SEQUENCE),
]
OF_SETTING_ASIDE = (
    Failpoint.FENCE_RAISED,
    Failpoint.LOST_DIRECTORY_MOVED,
    Failpoint.LOST_FILES_MOVED,
    Failpoint.LOST_MARKER_MOVED,
)


@pytest.fixture
def backup(server: EmbeddedServer) -> Iterator[Backup]:
    with backups(server) as take:
        yield take


def publish_more(world: World, *, runs: int = 1, mode: Mode = Mode.APPEND) -> None:
    for _run in range(runs):
        world.lake.add_rows(LOST, 5)
        assert not world.run(urns=[LOST], mode=mode).failed


def kill(lake: Lake, failpoint: str, mode: Mode = Mode.APPEND, *, of: World | None = None) -> None:
    worker = start_worker(lake, failpoint=f"{failpoint}=kill", mode=mode)
    assert worker.wait() == -signal.SIGKILL
    assert worker.reached()
    if of is not None:
        of.expire_leases()


def only(lake: Lake) -> Lake:
    """The lake with this dataset only; it must be the first, so that its source stays the same file."""
    return dataclasses.replace(lake, urns=(LOST,))


def ledger(world: World) -> list[tuple[object, ...]]:
    """The state of the dataset as a person sees it: no id that a log makes, no time, no fence."""
    query = """
        SELECT s.sequence_id::text, s.state, s.mode, s.replaces, s.complete, s.base_version, s.result_version,
               s.digest, s.row_count, s.file_count, s.file_bytes, s.details - 'duration_s',
               k.name, k.partition, k.watermark, k.sequence_id::text, l.low, l.high, l.reread_from, l.active,
               l.retired_by::text, d.version, d.source_columns, d.published_columns
          FROM gobblin.dataset d
          JOIN gobblin.commit_sequence s USING (dataset_id)
          LEFT JOIN gobblin.ledger l USING (sequence_id)
          LEFT JOIN gobblin.watermark_key k USING (key_id)
         WHERE d.urn = :urn AND s.state = 'DONE'
         ORDER BY s.result_version, l.low_bytes
    """
    segments = """
        SELECT g.segment_id::text, g.attempt_id::text, g.role, g.partition, g.payload, g.digest, g.sealed,
               g.retired_by::text, a.staging_path, a.state
          FROM gobblin.segment g JOIN gobblin.attempt a USING (attempt_id) JOIN gobblin.dataset d
            ON d.dataset_id = g.dataset_id
         WHERE d.urn = :urn AND g.sealed ORDER BY g.segment_id
    """
    with world.engine.connect() as connection:
        return [tuple(row) for query_ in (query, segments) for row in connection.execute(text(query_), {"urn": LOST})]


def set_aside_rows(world: World) -> Counter[tuple[int, str]]:
    found = [Path(path) for path in world.lake.files.list_all()]
    return world.read_rows([str(each) for each in found if SET_ASIDE_NAME in each.parts and each.suffix == ".parquet"])


def check_runs_again(world: World) -> None:
    """Add rows, publish them by a run, and check that everything is there once."""
    for urn in world.lake.urns:
        world.lake.add_rows(urn, 4)
    report = world.run()
    assert not report.failed, [each.error for each in report.failed]
    world.check_exactly_once()


@with_stores
@pytest.mark.rotating
@pytest.mark.parametrize(("mode", "runs"), cross((Mode.APPEND, Mode.REFRESH), (1, 3)))
def test_an_adopted_history_is_what_it_was(world: World, backup: Backup, runs: int, mode: Mode) -> None:
    world.run()
    restored = backup(world)
    publish_more(world, runs=runs, mode=mode)
    fences = world.scalar(
        "SELECT fence FROM gobblin.lease JOIN gobblin.dataset ON dataset_id = lane_id WHERE urn = :u", u=LOST
    )

    done = reconcile(restored, LOST, Way.ADOPT)

    assert [each.version for each in done.adopted] == list(range(2, 2 + runs))
    assert ledger(restored) == ledger(world)
    assert done.fence > int(str(fences))
    assert not examine(restored, LOST).is_behind
    restored.run()
    restored.check_exactly_once()
    check_runs_again(restored)


def test_a_dataset_that_the_log_never_heard_of_is_adopted(world: World, backup: Backup) -> None:
    restored = backup(world)
    publish_more(world, runs=2)
    publish_more(world, mode=Mode.REFRESH)

    reconcile(restored, LOST, Way.ADOPT)

    assert ledger(restored) == ledger(world)
    check_runs_again(restored)


@with_stores
@pytest.mark.rotating
@pytest.mark.parametrize(("mode", "runs"), cross((Mode.REFRESH, Mode.APPEND), (1, 3)))
def test_what_is_set_aside_is_read_again(world: World, backup: Backup, runs: int, mode: Mode) -> None:
    world.run()
    restored = backup(world)
    publish_more(world, runs=runs, mode=mode)
    lost = Counter(world.lake.source_rows(LOST))
    if mode is Mode.APPEND:
        lost -= Counter(world.lake.source_rows(LOST)[:13])

    done = reconcile(restored, LOST, Way.SET_ASIDE)

    assert done.aside is not None
    assert done.moved
    assert set_aside_rows(restored) == lost, "something was deleted"
    # A refresh of the lost history retired the log's own files, and cleanup removed them: only a refresh repairs this.
    finding = examine(restored, LOST)
    assert (finding.is_behind, finding.missing_count > 0) == (False, mode is Mode.REFRESH)
    assert not restored.run(mode=mode).failed
    restored.check_exactly_once()
    check_runs_again(restored)


@with_objects
@pytest.mark.rotating
@pytest.mark.parametrize(("way", "point"), cross(WAYS, (*LEFT_OPEN, "verified_before_finish")))
@pytest.mark.turns("a history that was lost")
def test_a_lost_history_that_ended_in_the_middle_of_a_publication(
    lake: Lake, world: World, backup: Backup, point: str, way: Way
) -> None:
    world.run()
    restored = backup(world)
    publish_more(world)
    for urn in lake.urns:
        lake.add_rows(urn, 5)
    kill(lake, point)

    for urn in URNS:
        if examine(restored, urn).is_behind:
            reconcile(restored, urn, way)

    assert not restored.run().failed
    check_runs_again_but_for_staging(restored)


def check_runs_again_but_for_staging(world: World) -> None:
    """Files that the lost history wrote and never published stay in staging: no log knows their owner."""
    for urn in world.lake.urns:
        assert world.published_rows(urn) == Counter(world.lake.source_rows(urn))
        assert world.watermark(urn) == len(world.lake.source_rows(urn))
    visible = sorted(path for urn in world.lake.urns for path in world.published_paths(urn))
    assert [path for path in world.stored_files() if ".staging" not in Path(path).parts] == visible


@with_objects
@pytest.mark.rotating
@pytest.mark.parametrize("mode", [Mode.APPEND, pytest.param(Mode.REFRESH, marks=pytest.mark.thorough)])
@pytest.mark.parametrize(("way", "point"), cross(WAYS, tuple(LEFT_OPEN)))
@pytest.mark.turns("a history that was lost")
def test_what_the_backup_has_open_was_finished_in_the_history_that_was_lost(
    lake: Lake, world: World, backup: Backup, point: str, mode: Mode, way: Way
) -> None:
    """Killed at the point, backed up, recovered by a run that publishes more, and then restored."""
    world.run()
    lake.add_rows(LOST, 5)
    worker = start_worker(only(lake), failpoint=f"{point}=kill", mode=mode)
    assert worker.wait() == -signal.SIGKILL
    world.expire_leases()
    restored = backup(world)
    assert (
        restored.scalar("SELECT state FROM gobblin.commit_sequence ORDER BY created_at DESC LIMIT 1")
        == (LEFT_OPEN[point])
    )
    publish_more(world, runs=2)

    assert [each.outcome for each in restored.run().failed] == [DatasetOutcome.BLOCKED]
    reconcile(restored, LOST, way)

    if way is Way.ADOPT:
        assert ledger(restored) == ledger(world)
    assert not restored.run(mode=mode).failed
    check_runs_again(restored)


@with_objects
@pytest.mark.rotating
@pytest.mark.parametrize("end", ["abandoned", "blocked and resumed"])
@pytest.mark.turns("a history that was lost")
def test_what_the_backup_has_open_was_decided_by_a_person_in_the_lost_history(
    lake: Lake, world: World, backup: Backup, end: str
) -> None:
    kill(lake, "step_after", of=world)
    (sequence,) = world.stores.commits.list_open(None, limit=10)
    restored = backup(world)
    if end == "abandoned":
        world.operations().abandon(sequence.sequence_id, reason="a test")
    else:
        world.operations().recover_due(None, on_publication=lambda _publication: None)
    for urn in lake.urns:
        lake.add_rows(urn, 5)
    assert not world.run().failed

    for urn in URNS:
        reconcile(restored, urn, Way.ADOPT)

    assert restored.stores.commits.get(sequence.sequence_id).state == ("ABORTED" if end == "abandoned" else "DONE")
    assert ledger(restored) == ledger(world)
    check_runs_again(restored)


@with_objects
@pytest.mark.rotating
@pytest.mark.parametrize(("point", "count"), ADOPTION_KILLS, ids=str)
@pytest.mark.turns("a reconciliation that is killed")
def test_an_adoption_killed_anywhere_is_completed_by_the_next(
    world: World, backup: Backup, point: Failpoint, count: int
) -> None:
    """The last of three lost publications is a refresh: files that it replaced are gone, so those are only finished."""
    world.run()
    restored = backup(world)
    publish_more(world, runs=2)
    publish_more(world, mode=Mode.REFRESH)
    worker = start_reconciliation(restored.lake, LOST, Way.ADOPT, failpoint=f"{point}=kill@{count}")
    assert worker.wait() == -signal.SIGKILL
    assert worker.reached()
    restored.expire_leases()

    # Until the last one is sealed, the dataset is stopped; after that, any run completes it.
    between = restored.run()
    if point not in OF_EXECUTION:
        assert [each.outcome for each in between.failed] == [DatasetOutcome.BLOCKED]
        reconcile(restored, LOST, Way.ADOPT)
        assert ledger(restored) == ledger(world)

    assert not examine(restored, LOST).is_behind
    check_runs_again(restored)


@with_stores
@pytest.mark.rotating
@pytest.mark.parametrize("point", OF_SETTING_ASIDE, ids=str)
@pytest.mark.turns("a reconciliation that is killed")
def test_setting_aside_killed_anywhere_is_completed_by_the_next(world: World, backup: Backup, point: Failpoint) -> None:
    world.run()
    restored = backup(world)
    publish_more(world, runs=2)
    worker = start_reconciliation(restored.lake, LOST, Way.SET_ASIDE, failpoint=f"{point}=kill")
    assert worker.wait() == -signal.SIGKILL
    assert worker.reached()
    restored.expire_leases()
    assert [each.outcome for each in restored.run().failed] == [DatasetOutcome.BLOCKED]

    if point is not Failpoint.FENCE_RAISED:
        with pytest.raises(ConflictError, match="can't be adopted"):
            reconcile(restored, LOST, Way.ADOPT)
    reconcile(restored, LOST, Way.SET_ASIDE)

    assert sum(set_aside_rows(restored).values()) == 10
    assert not restored.run().failed
    check_runs_again(restored)


@with_stores
@pytest.mark.rotating
@pytest.mark.parametrize("fault", ["file gone", "file changed", "marker gone", "marker changed", "log went on"])
def test_a_history_that_is_not_whole_is_not_adopted_and_can_be_set_aside(
    world: World, backup: Backup, fault: str
) -> None:
    world.run()
    restored = backup(world)
    publish_more(world, runs=3)
    finding = examine(restored, LOST)
    middle = finding.forgotten[1]
    files = restored.lake.files
    file = next(path for path in files.list_all() if path.startswith(f"{middle.directories[0]}/"))
    expected = {"file gone": "is not there", "file changed": "is not the file", "marker gone": "no marker"}
    match fault:
        case "file gone":
            files.remove(file)
        case "file changed":
            files.write(file, files.read(file) + b"x")
        case "marker gone":
            files.remove(middle.markers[0].path)
        case "marker changed":
            marker = middle.markers[0].path
            files.write(marker, files.read(marker).replace(b'"complete":true', b'"complete":null'))
        case "log went on":
            with restored.engine.begin() as connection:
                connection.execute(text("UPDATE gobblin.lane SET version = version + 1"))

    shown = examine(restored, LOST).refusal

    assert shown is not None
    assert expected.get(fault, "") in shown
    with pytest.raises(ConflictError, match="can't be adopted"):
        reconcile(restored, LOST, Way.ADOPT)
    assert [each.outcome for each in restored.run().failed] == [DatasetOutcome.BLOCKED]
    reconcile(restored, LOST, Way.SET_ASIDE)
    assert not restored.run().failed
    check_runs_again(restored)


@with_stores
def test_whoever_still_acts_in_the_lost_history_is_fenced(lake: Lake, world: World, backup: Backup) -> None:
    """Otherwise its fence would be given out again; its staged files are out of its reach."""
    world.run()
    restored = backup(world)
    publish_more(world, runs=2)
    lake.add_rows(LOST, 5)
    sleeper = start_worker(only(lake), failpoint="marker_written=stop")
    sleeper.wait_until_stopped()
    (open_,) = [each for each in examine(restored, LOST).forgotten if not each.directories]

    done = reconcile(restored, LOST, Way.SET_ASIDE)
    restored.run()
    sleeper.wake_up()

    assert sleeper.wait() == 1
    assert done.fence > open_.fence
    assert not [path for path in restored.stored_files() if SequenceId(open_.sequence_id).hex in path]
    check_runs_again(restored)


def test_a_held_dataset_is_left_to_its_holder(lake: Lake, world: World, backup: Backup) -> None:
    world.run()
    restored = backup(world)
    publish_more(world)
    sleeper = start_worker(restored.lake, failpoint="lease_taken=stop")
    sleeper.wait_until_stopped()
    try:
        with pytest.raises(ConflictError, match="worked on by"):
            reconcile(restored, LOST, Way.SET_ASIDE)
        assert set_aside_rows(restored) == Counter()
    finally:
        sleeper.wake_up()
    assert sleeper.wait() == 1
