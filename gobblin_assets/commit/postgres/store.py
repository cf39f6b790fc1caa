"""The adapter: each method of the port is one transaction, repeated within bounds until its outcome is known."""

import uuid
from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from gobblin_assets.commit.folding import FoldBounds
from gobblin_assets.commit.postgres import (
    building,
    cleaning,
    finishing,
    folding,
    forgetting,
    queries,
    sealed,
    sealing,
    standing,
)
from gobblin_assets.commit.sequence import (
    AttemptRecord,
    KeyMove,
    KnownSequence,
    LeftoverRequest,
    NewAttempt,
    NewSequence,
    Publication,
    SealedSequence,
    SealOrder,
    SequenceRecord,
    StagedAttempt,
)
from gobblin_assets.commit.store import LogView, StoredSegment
from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import ConflictError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.state import AttemptId, DatasetId, LaneId, SequenceId
from gobblin_assets.model.urn import JobName

_MARK_ANNOUNCED = text("""
    UPDATE gobblin.commit_sequence SET announced_at = clock_timestamp()
     WHERE sequence_id = ANY (CAST(:sequence_ids AS uuid[])) AND state = 'DONE' AND announced_at IS NULL
""")


class PostgresCommitStepStore:
    """``CommitStepStore`` over one engine. Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, *sequences: NewSequence) -> None:
        try:
            transact(
                self._engine,
                "begin sequence",
                lambda c: building.begin(c, sequences),
                committed=Failpoint.SEQUENCE_BEGUN,
            )
        except IntegrityError as error:
            raise ConflictError(
                f"the log does not know run {sequences[0].run_id}: it is older than the run",
                hint="Postgres failed over to a standby that lagged, or was restored. Nothing was read; the next run "
                "finds what is missing.",
                run_id=str(sequences[0].run_id),
            ) from error

    def continue_building(self, sequence_id: SequenceId, *, fence: int) -> None:
        transact(self._engine, "continue building", lambda c: building.continue_building(c, sequence_id, fence))

    def register_attempt(self, *attempts: NewAttempt) -> None:
        transact(
            self._engine,
            "register attempt",
            lambda c: building.register_attempts(c, attempts),
            committed=Failpoint.ATTEMPT_REGISTERED,
        )

    def fail_attempt(self, *attempt_ids: AttemptId, error: str, cancelled: bool) -> None:
        transact(
            self._engine,
            "fail attempt",
            lambda c: building.fail_attempts(c, attempt_ids, error, cancelled=cancelled),
        )

    def stage(self, *staged: StagedAttempt) -> None:
        try:
            transact(
                self._engine,
                "stage attempt",
                lambda c: building.stage(c, staged),
                committed=Failpoint.STAGE_COMMITTED,
            )
        except IntegrityError as error:
            # The partial unique index: one winner for each MultiWorkUnit of a sequence.
            raise ConflictError(
                "another attempt at the same work is staged already",
                attempt_id=", ".join(str(each.attempt_id) for each in staged),
                sequence_id=", ".join(str(each.sequence_id) for each in staged),
            ) from error

    def seal(self, *orders: SealOrder) -> None:
        try:
            transact(
                self._engine,
                "seal sequence",
                lambda c: sealing.seal(c, orders),
                committed=Failpoint.SEAL_COMMITTED,
            )
        except IntegrityError as error:
            # The partial unique index: one open sequence for a dataset.
            raise ConflictError(
                "another sequence of this dataset is still open",
                hint="It is completed first; see `gobblin-assets commit list`.",
                sequence_id=", ".join(str(order.sequence_id) for order in orders),
            ) from error

    def abort(self, sequence_id: SequenceId, *, fence: int, error: str | None) -> None:
        transact(self._engine, "abort sequence", lambda c: building.abort(c, sequence_id, fence, error))

    def get(self, sequence_id: SequenceId) -> SequenceRecord:
        return transact(self._engine, "read sequence", lambda c: queries.get(c, sequence_id))

    def read_segments(self, sequence_id: SequenceId) -> Iterator[StoredSegment]:
        return queries.read_segments(self._engine, sequence_id)

    def load_sealed(self, *sequence_ids: SequenceId) -> Sequence[SealedSequence]:
        return transact(self._engine, "read sealed sequences", lambda c: sealed.load_sealed(c, sequence_ids))

    def is_open_and_held(self, sequence_id: SequenceId, *, fence: int) -> bool:
        return transact(self._engine, "confirm sequence", lambda c: queries.is_open_and_held(c, sequence_id, fence))

    def finish(self, sequence_id: SequenceId, *, fence: int) -> int:
        return self.finish_all({sequence_id: fence})[sequence_id]

    def finish_all(self, fences: Mapping[SequenceId, int]) -> Mapping[SequenceId, int]:
        try:
            return transact(
                self._engine,
                "finish sequence",
                lambda c: finishing.finish(c, fences),
                committed=Failpoint.FINISH_COMMITTED,
            )
        except IntegrityError as error:
            # The exclusion constraint or the one-generation index of the ledger.
            raise ConflictError(
                "the ledger already holds a part of what this sequence would publish",
                hint="Compare `gobblin-assets ledger` with `gobblin-assets commit show`.",
                sequence_id=", ".join(map(str, fences)),
            ) from error

    def record_failure(
        self,
        sequence_id: SequenceId,
        *,
        fence: int,
        error: str,
        tries_max: int,
        retry_in_s: float,
        block: bool,
    ) -> SequenceRecord:
        transact(
            self._engine,
            "record failure",
            lambda c: finishing.record_failure(
                c,
                sequence_id,
                fence,
                error=error,
                tries_max=tries_max,
                retry_in_s=retry_in_s,
                block=block,
            ),
        )
        return self.get(sequence_id)

    def defer(self, sequence_id: SequenceId, *, fence: int, error: str, retry_in_s: float) -> None:
        transact(
            self._engine,
            "defer sequence",
            lambda c: finishing.defer(c, sequence_id, fence, error=error, retry_in_s=retry_in_s),
        )

    def resume(self, sequence_id: SequenceId, *, fence: int) -> None:
        transact(self._engine, "resume sequence", lambda c: finishing.resume_blocked(c, sequence_id, fence))

    def begin_abandon(self, sequence_id: SequenceId, *, fence: int, reason: str) -> None:
        transact(
            self._engine,
            "abandon sequence",
            lambda c: finishing.begin_abandon(c, sequence_id, fence, reason),
            committed=Failpoint.ABANDON_RECORDED,
        )

    def claim(self, sequence_id: SequenceId, *, fence: int) -> Sequence[AttemptRecord]:
        return transact(self._engine, "claim sequence", lambda c: finishing.claim(c, sequence_id, fence))

    def list_attempts(self, sequence_id: SequenceId) -> Sequence[AttemptRecord]:
        return transact(self._engine, "list attempts", lambda c: cleaning.list_attempts(c, sequence_id))

    def end_abandon(self, sequence_id: SequenceId, *, fence: int, unlogged: Sequence[str] = ()) -> None:
        transact(
            self._engine,
            "give up sequence",
            lambda c: finishing.end_abandon(c, sequence_id, fence, unlogged),
            committed=Failpoint.ABANDON_COMMITTED,
        )

    def find_unfinished(self, *dataset_ids: DatasetId) -> Sequence[SequenceRecord]:
        return transact(self._engine, "find unfinished", lambda c: queries.find_unfinished(c, dataset_ids))

    def find_known(self, sequence_ids: Sequence[SequenceId]) -> Mapping[SequenceId, KnownSequence]:
        return transact(self._engine, "find known sequences", lambda c: sealed.find_known(c, sequence_ids))

    def look_at(self, job: JobName, dataset_ids: Sequence[DatasetId], sequence_ids: Sequence[SequenceId]) -> LogView:
        return transact(self._engine, "look at log", lambda c: queries.look_at(c, job, dataset_ids, sequence_ids))

    def list_lane_ids(self, dataset_id: DatasetId) -> Sequence[LaneId]:
        return transact(self._engine, "list lanes", lambda c: queries.list_lane_ids(c, dataset_id))

    def find_newest_segment(self, dataset_id: DatasetId) -> StoredSegment | None:
        return queries.find_newest_segment(self._engine, dataset_id)

    def list_recoverable(self, *, jobs: Sequence[JobName] | None, limit: int) -> Sequence[SequenceRecord]:
        return transact(self._engine, "list recoverable", lambda c: queries.list_recoverable(c, jobs, limit))

    def count_recoverable(self, *, jobs: Sequence[JobName] | None) -> Mapping[JobName, int]:
        return transact(self._engine, "count recoverable", lambda c: queries.count_recoverable(c, jobs))

    def list_open(self, job: JobName | None, *, limit: int) -> Sequence[SequenceRecord]:
        return transact(self._engine, "list open", lambda c: queries.list_open(c, job, limit))

    def list_standing_moves(self, dataset_id: DatasetId, partition: str) -> Sequence[KeyMove]:
        return transact(
            self._engine, "list standing moves", lambda c: standing.list_standing_moves(c, dataset_id, partition)
        )

    def load_publications(self, *sequence_ids: SequenceId) -> Sequence[Publication]:
        return transact(self._engine, "read publications", lambda c: queries.load_publications(c, sequence_ids))

    def list_unannounced(self, *, job: JobName, limit: int) -> Sequence[Publication]:
        return transact(self._engine, "list unannounced", lambda c: queries.list_unannounced(c, job, limit))

    def list_latest(self, job: JobName) -> Sequence[SequenceId]:
        return transact(self._engine, "list latest", lambda c: queries.list_latest(c, job))

    def mark_announced(self, *sequence_ids: SequenceId) -> None:
        arguments = {"sequence_ids": list(sequence_ids)}
        transact(self._engine, "mark announced", lambda c: c.execute(_MARK_ANNOUNCED, arguments).rowcount)

    def mark_for_cleanup(self, fences: Mapping[LaneId, int], *, limit: int) -> Sequence[AttemptRecord]:
        return transact(
            self._engine,
            "mark for cleanup",
            lambda c: cleaning.mark_for_cleanup(c, fences, limit),
            committed=Failpoint.CLEANUP_MARKED,
        )

    def mark_for_reuse(self, request: LeftoverRequest) -> Sequence[AttemptRecord]:
        return transact(
            self._engine,
            "mark for reuse",
            lambda c: cleaning.mark_for_reuse(c, request),
            committed=Failpoint.REUSE_MARKED,
        )

    def mark_cleaned(self, fences: Mapping[AttemptId, int]) -> None:
        transact(self._engine, "mark cleaned", lambda c: cleaning.mark_cleaned(c, fences))

    def list_removable(self, *lane_ids: LaneId, grace_s: float, limit: int) -> Sequence[StoredSegment]:
        ids = transact(
            self._engine,
            "list removable",
            lambda c: cleaning.list_removable(c, lane_ids, grace_s, limit),
        )
        return queries.load_segments(self._engine, ids) if ids else []

    def mark_removed(self, segment_ids: Sequence[uuid.UUID]) -> None:
        transact(self._engine, "mark removed", lambda c: cleaning.mark_removed(c, segment_ids))

    def find_foldable(self, *lane_ids: LaneId, bounds: FoldBounds) -> Sequence[LaneId]:
        return transact(self._engine, "find foldable", lambda c: folding.find_due(c, lane_ids, bounds))

    def fold(self, lane_id: LaneId, *, fence: int, bounds: FoldBounds, limit: int) -> int:
        return transact(
            self._engine,
            "fold sequences",
            lambda c: folding.fold(c, lane_id, fence, bounds, limit),
            committed=Failpoint.FOLD_COMMITTED,
        )

    def forget(self, lane_id: LaneId, *, fence: int, bounds: FoldBounds, limit: int) -> int:
        return transact(self._engine, "forget sequences", lambda c: forgetting.forget(c, lane_id, fence, bounds, limit))

    def mark_folded(self, lane_id: LaneId, *, fence: int, bounds: FoldBounds) -> None:
        transact(self._engine, "mark folded", lambda c: folding.mark_folded(c, lane_id, fence, bounds))
