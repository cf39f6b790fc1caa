"""A user's own kind of step is sealed, executed, recovered, abandoned, folded and read like ours."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gobblin_assets import failpoints
from gobblin_assets.commit import step_kinds, step_world
from gobblin_assets.commit.folding import FoldBounds
from gobblin_assets.commit.published.verification import Verification, VerificationProgress
from gobblin_assets.commit.reconciliation import Way
from gobblin_assets.commit.recovery import SweepReport
from gobblin_assets.commit.segment import combine_digests, encode_segments
from gobblin_assets.commit.sequence import NewAttempt, NewSequence, SealOrder, StagedAttempt
from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.path_names import path_of
from gobblin_assets.model.state import AttemptId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from tests.support.custom_steps import CATALOGUES, ENTER, REGISTER, Catalogue, Enter, Register, registered
from tests.support.lake import Lake, World
from tests.support.restoring import backups, reconcile

pytestmark = pytest.mark.turns(of=4)


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    CATALOGUES.clear()
    with registered(REGISTER, ENTER):
        yield


@pytest.fixture
def catalog(lake: Lake, world: World) -> Path:
    """Where tables are registered. One run has happened, so that the log has the datasets."""
    world.run()
    return Path(lake.root, "catalog")


def test_it_is_completed_by_recovery(world: World, catalog: Path) -> None:
    sequence_id = seal(world, [Register(str(catalog), "orders"), Register(str(catalog), "refunds")])

    with failing_after_the_first_step():
        recover(world)
    assert state_of(world, sequence_id) == "PREPARED"
    assert names(catalog) == ["orders"]
    world.make_due()

    recover(world)

    assert state_of(world, sequence_id) == "DONE"
    assert names(catalog) == ["orders", "refunds"]


@pytest.mark.parametrize("killed_at", [None, Failpoint.ABANDON_CAPTURED, Failpoint.ABANDON_RETURNED], ids=str)
def test_it_is_abandoned_whatever_of_it_happened(world: World, catalog: Path, killed_at: Failpoint | None) -> None:
    sequence_id = seal(world, [Register(str(catalog), "orders"), Register(str(catalog), "refunds")])
    with failing_after_the_first_step():
        recover(world)

    if killed_at is not None:
        with failing(killed_at), pytest.raises(OSError, match="injected"):
            abandon(world, sequence_id)
        assert state_of(world, sequence_id) == "ABANDONING"
    abandon(world, sequence_id)

    assert state_of(world, sequence_id) == "ABORTED"
    assert names(catalog) == []
    assert world.run().failed == ()


def test_a_stranger_s_work_is_left_as_it_is_until_it_is_moved_away(world: World, catalog: Path) -> None:
    sequence_id = seal(world, [Register(str(catalog), "orders")])
    stranger = catalog / "orders" / "theirs"
    stranger.mkdir(parents=True)

    with pytest.raises(ConflictError, match=r"a step of the kind tests.register .* it stays as it is"):
        abandon(world, sequence_id)
    assert stranger.is_dir()
    stranger.rmdir()
    recover(world)

    assert state_of(world, sequence_id) == "ABORTED"
    assert names(catalog) == []


@pytest.mark.usefixtures("catalog")
def test_what_can_t_be_undone_is_refused_before_anything_begins(world: World) -> None:
    sequence_id = seal(world, [entry(world, "orders")])

    for _again in range(2):
        with pytest.raises(RejectedError, match="can't be undone: a catalogue forgets nothing") as refused:
            abandon(world, sequence_id)
        assert state_of(world, sequence_id) == "PREPARED"
    assert f"commit resume {sequence_id}" in refused.value.hint

    world.operations().resume(sequence_id)
    assert state_of(world, sequence_id) == "DONE"
    assert len(CATALOGUES["c"].entries) == 1


@pytest.mark.usefixtures("catalog")
def test_an_abandonment_that_an_earlier_release_began_ends_once_it_was_undone_by_hand(world: World) -> None:
    sequence_id = seal(world, [entry(world, "orders")])
    with failing_after_the_first_step():
        recover(world)
    sequence = world.stores.commits.get(sequence_id)
    with world.operations().hold(sequence.dataset_id, sequence.urn) as (_keeper, lease):
        world.stores.commits.begin_abandon(sequence_id, fence=lease.fence, reason="an earlier release")

    report = recover(world)
    assert "Undo it by hand, then do this again" in str(report.failures[0].error)
    assert state_of(world, sequence_id) == "ABANDONING"
    CATALOGUES["c"].entries.clear()
    abandon(world, sequence_id)

    assert state_of(world, sequence_id) == "ABORTED"


def test_a_kind_that_is_not_installed_blocks_its_dataset_alone(lake: Lake, world: World, catalog: Path) -> None:
    sequence_id = seal(world, [Register(str(catalog), "orders")])
    others_id = seal(world, [], urn=lake.urns[1])

    with not_installed():
        report = recover(world)

    assert [failure.sequence.sequence_id for failure in report.failures] == [sequence_id]
    assert report.published == 1
    assert state_of(world, others_id) == "DONE"
    blocked = world.stores.commits.get(sequence_id)
    assert blocked.state == "BLOCKED"
    assert "Import the module 'tests.support.custom_steps'" in (blocked.last_error or "")
    with not_installed():
        assert [r.outcome for r in world.run().failed] == ["BLOCKED"]
        with pytest.raises(ConflictError, match="no package of this environment has"):
            abandon(world, sequence_id)
    assert state_of(world, sequence_id) == "BLOCKED"

    world.operations().resume(sequence_id)

    assert state_of(world, sequence_id) == "DONE"
    assert names(catalog) == ["orders"]


def test_what_a_step_raises_is_told_without_its_text_and_others_go_on(lake: Lake, world: World, catalog: Path) -> None:
    sequence_id = seal(world, [Register(str(catalog), "orders")])
    others_id = seal(world, [Register(str(catalog), "refunds")], urn=lake.urns[1])

    def execute(step: Register, _world: object) -> None:
        if step.table == "orders":
            raise ValueError("password=verysecret")

    with mock.patch.object(Register, "execute", execute):
        report = recover(world)

    assert {failure.sequence.sequence_id for failure in report.failures} == {sequence_id, others_id}
    error = world.stores.commits.get(sequence_id).last_error or ""
    assert "a step of the kind 'tests.register' raised ValueError" in error
    assert "verysecret" not in error


@pytest.mark.usefixtures("catalog")
def test_steps_share_what_they_open_and_it_is_closed_after_them(world: World) -> None:
    seal(world, [entry(world, "orders"), entry(world, "refunds")])

    recover(world)

    assert len(CATALOGUES["c"].entries) == 2
    assert (CATALOGUES["c"].opened, CATALOGUES["c"].closed) == (1, 1)


@pytest.mark.usefixtures("catalog")
def test_a_step_that_asks_for_what_the_process_has_not_is_refused(world: World) -> None:
    sequence_id = seal(world, [entry(world, "orders")])

    with registered():
        del step_world._openers[Catalogue]
        recover(world)

    assert "port: a step asks for Catalogue" in (world.stores.commits.get(sequence_id).last_error or "")


@pytest.mark.usefixtures("catalog")
def test_what_it_published_is_read_verified_folded_and_retired_where_it_is_not_installed(
    lake: Lake, world: World
) -> None:
    step = entry(world, "orders")
    seal(world, [step])
    recover(world)
    job, urn = JobName(lake.job_name), DatasetUrn(lake.urns[0])

    with not_installed():
        assert step.path in list_paths(world, job, urn)
        state = world.stores.datasets.load(job, [urn])[urn]
        bounds = FoldBounds(keep=0, count_min=1, age_s=0.0)
        world.execute("UPDATE gobblin.commit_sequence SET announced_at = now() WHERE state = 'DONE'")
        cleaned = world.operations().clean(state, root_uri=lake.root, retire_grace_s=0.0, fold=bounds)
        assert cleaned.folded == 2
        assert step.path in list_paths(world, job, urn)
        progress = VerificationProgress(SystemClock(), world.lines.append)
        stores = world.stores
        verification = Verification(stores.commits, stores.published, open_file_system, lake.root, job, progress)
        assert verification.verify(urn, state.dataset_id, checksums=True).faults == []
        world.run(mode=Mode.REFRESH)

    assert not Path(step.path).exists()


@pytest.mark.parametrize("way", list(Way), ids=str)
def test_a_log_that_forgot_it_adopts_it_or_sets_it_aside(
    world: World, catalog: Path, server: EmbeddedServer, way: Way
) -> None:
    with backups(server) as take:
        restored = take(world)
        sequence_id = seal(world, [Register(str(catalog), "orders")])
        recover(world)
        assert names(catalog) == ["orders"]

        for _again in range(2):
            reconcile(restored, world.lake.urns[0], way)

        known = restored.stores.commits.find_known([sequence_id])
        if way is Way.ADOPT:
            assert known[sequence_id].state == "DONE"
            assert names(catalog) == ["orders"]
        else:
            assert known == {}
            assert names(catalog) == []


def list_paths(world: World, job: JobName, urn: DatasetUrn) -> list[str]:
    found = world.stores.published.find(job, urn, role=Role.DATA)
    assert found is not None
    paths = [file.path for segment in found.segments for file in segment.files()]
    assert paths == [path for segment in found.segments for path, _size in segment.file_sizes()]
    return paths


def entry(world: World, name: str) -> Enter:
    """A step that enters a Parquet file of two rows; this function writes the file."""
    path = Path(
        path_of(world.lake.root, JobName(world.lake.job_name), DatasetUrn(world.lake.urns[0])), name, "a.parquet"
    )
    path.parent.mkdir()
    pq.write_table(pa.table({"number": [1, 2], "value": ["a", "b"]}), path, write_page_checksum=True)
    identity = open_file_system(world.lake.root)[0].find_identity(str(path))
    assert identity is not None
    return Enter("c", str(path), identity, 2)


def recover(world: World) -> SweepReport:
    return world.operations().recover_due(None, on_publication=lambda _publication: None)


def abandon(world: World, sequence_id: SequenceId) -> None:
    world.operations().abandon(sequence_id, reason="a test")


def state_of(world: World, sequence_id: SequenceId) -> str:
    return world.stores.commits.get(sequence_id).state.value


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []


@contextmanager
def failing(point: Failpoint) -> Iterator[None]:
    def fail(reached: Failpoint) -> None:
        if reached is point:
            raise OSError(5, "injected")

    with failpoints.install(fail):
        yield


def failing_after_the_first_step() -> AbstractContextManager[None]:
    return failing(Failpoint.STEP_AFTER)


@contextmanager
def not_installed() -> Iterator[None]:
    """In the block, this process knows only our own kinds."""
    with registered():
        for kind in (REGISTER, ENTER):
            del step_kinds._kinds[kind.name]
        yield


def staging_of(world: World, attempt_id: AttemptId) -> str:
    return f"{world.lake.root}/.staging/{attempt_id.hex}"


def seal(world: World, steps: Sequence[CommitStep], urn: str = "") -> SequenceId:
    """Begin, stage and seal a sequence of these steps for a dataset, the first by default, and leave it there."""
    operations = world.operations()
    urn = urn or world.lake.urns[0]
    state = world.stores.datasets.load(world.lake.job().job, [urn])[urn]  # type: ignore[arg-type,index]  # names
    (lease,) = world.stores.leases.take([state.dataset_id], operations.holder, ttl_s=60.0)
    run_id = world.scalar("SELECT run_id FROM gobblin.run LIMIT 1")
    sequence_id = SequenceId(operations.clock.new_id())
    attempt_id = AttemptId(operations.clock.new_id())
    store = world.stores.commits
    store.begin(
        NewSequence(sequence_id, state.dataset_id, run_id, "", Mode.APPEND, False, lease.fence, world.lake.root)  # type: ignore[arg-type]  # a scalar
    )
    store.register_attempt(
        NewAttempt(attempt_id, sequence_id, state.dataset_id, lease.fence, 0, 1, staging_of(world, attempt_id))
    )
    segments = tuple(encode_segments(steps, role=Role.DATA, partition=""))
    ids = tuple(operations.clock.new_id() for _segment in segments)
    store.stage(StagedAttempt(attempt_id, sequence_id, lease.fence, segments, ids))
    store.seal(
        SealOrder(
            sequence_id=sequence_id,
            dataset_id=state.dataset_id,
            partition="",
            fence=lease.fence,
            base_version=state.version,
            winners=(attempt_id,),
            digest=combine_digests(segment.digest for segment in segments),
            segment_count=len(segments),
            row_count=sum(segment.row_count for segment in segments),
            moves=(),
            complete=True,
        )
    )
    world.stores.leases.release([lease])
    return sequence_id
