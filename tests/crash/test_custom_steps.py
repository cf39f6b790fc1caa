"""The registry of step kinds is open: a user's own kind is sealed, carried out, and recovered like ours."""

from pathlib import Path

import pytest

from gobblin_assets import failpoints
from gobblin_assets.commit import steps as commit_steps
from gobblin_assets.commit.segment import combine_digests, encode_segments
from gobblin_assets.commit.sequence import NewAttempt, NewSequence, SealOrder, StagedAttempt
from gobblin_assets.errors import GobblinError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.state import AttemptId, SequenceId
from gobblin_assets.model.urn import Role
from tests.support.custom_steps import KIND, Register, read_register
from tests.support.lake import Lake, World


def test_a_kind_of_one_s_own_is_completed_by_recovery(
    lake: Lake, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_steps, "_READERS", dict(commit_steps._READERS))
    commit_steps.register(KIND, read_register)
    world.run()
    catalog = Path(lake.root, "catalog")
    sequence_id = seal(world, [Register(str(catalog), "orders"), Register(str(catalog), "refunds")])

    def fail_after_the_first(point: Failpoint) -> None:
        if point is Failpoint.STEP_AFTER:
            raise OSError(5, "the catalogue went away")

    with failpoints.install(fail_after_the_first):
        world.operations().recover_due(None, on_publication=lambda _publication: None)
    assert world.stores.commits.get(sequence_id).state == "PREPARED"
    assert sorted(path.name for path in catalog.iterdir()) == ["orders"]
    with world.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE gobblin.commit_sequence SET next_try_at = NULL")

    world.operations().recover_due(None, on_publication=lambda _publication: None)

    assert world.stores.commits.get(sequence_id).state == "DONE"
    assert sorted(path.name for path in catalog.iterdir()) == ["orders", "refunds"]


def test_a_kind_that_is_not_installed_stops_the_dataset_and_loses_nothing(
    lake: Lake, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run()
    monkeypatch.setattr(commit_steps, "_READERS", {**commit_steps._READERS, KIND: read_register})
    sequence_id = seal(world, [Register(f"{lake.root}/catalog", "orders")])
    monkeypatch.undo()

    report = world.run()

    assert [r.urn for r in report.failed] == [lake.urns[0]]
    assert "unknown kind" in (report.failed[0].error or "")
    assert world.stores.commits.get(sequence_id).state == "PREPARED"
    with pytest.raises(GobblinError, match="unknown kind"):
        commit_steps.read_step(KIND, {})


def seal(world: World, steps: list[commit_steps.CommitStep]) -> SequenceId:
    """Begin, stage and seal a sequence of these steps for the first dataset, and leave it there."""
    operations = world.operations()
    urn = world.lake.urns[0]
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
        NewAttempt(attempt_id, sequence_id, state.dataset_id, lease.fence, 0, 1, f"{world.lake.root}/.staging/x")
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
            row_count=0,
            moves=(),
            complete=True,
        )
    )
    world.stores.leases.release([lease])
    return sequence_id
