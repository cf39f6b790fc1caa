"""Operations of sensors and people on the log outside a run: recover, resume, abandon, clean.

Each operation first takes the dataset's lease, keeps it alive while it works, and gives it back. A dataset that
another process holds is left alone: its holder does the same work.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from gobblin_assets.commit.abandonment import Abandonment
from gobblin_assets.commit.attempts import SET_ASIDE_NAME, captured_directory
from gobblin_assets.commit.cleanup import Cleaned, Cleanup
from gobblin_assets.commit.driver import PUBLISH_TRIES_MAX, Driver
from gobblin_assets.commit.folding import DEFAULT_FOLD, FoldBounds
from gobblin_assets.commit.markers import check_log
from gobblin_assets.commit.recovery import (
    LEFT_UNSEALED,
    UNBOUNDED,
    DatasetBusyError,
    Recovered,
    Sweep,
    SweepBounds,
    SweepReport,
    recover_lane,
)
from gobblin_assets.commit.repair import Keep, NamedRepair, UnsettledName
from gobblin_assets.commit.segment import decode_segment
from gobblin_assets.commit.sequence import AttemptRecord, Publication, SequenceRecord
from gobblin_assets.commit.step_world import OpenFileSystem, StepPorts, StepWorld
from gobblin_assets.commit.store import CommitStepStore
from gobblin_assets.errors import ConflictError, FencedError, GobblinError, RejectedError
from gobblin_assets.fs.named_files import require_named_files
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.path_names import encode_segment
from gobblin_assets.model.sequence_state import EDGES, SequenceEvent, SequenceState, target_of
from gobblin_assets.model.state import DatasetId, DatasetState, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.state.leases import Holder, Lease, LeaseKeeper, LeaseStatus, LeaseStore

LEASE_TTL_S: Final = 60.0
"""How long leases last, in seconds, where neither a job nor a sequence says it."""

DEFERRED_S: Final = 60.0
"""How many seconds a sequence rests if its recovery failed before a try: the log is behind, or storage is away."""


@dataclass(frozen=True, slots=True)
class LogOperations:
    """The operations, over ports. ``holder`` names the acting process.

    ``lease_ttl_s`` None: no job file is given. Then a sequence is held under leases as long as those of the run that
    began it, and everything else under leases of ``LEASE_TTL_S``.
    """

    store: CommitStepStore
    leases: LeaseStore
    open_file_system: OpenFileSystem
    interrupt: Callable[[AttemptRecord], None]
    clock: Clock
    holder: Holder
    say: Callable[[str], None]
    lease_ttl_s: float | None = None
    tries_max: int = PUBLISH_TRIES_MAX

    def recover_due(
        self,
        jobs: Sequence[JobName] | None,
        *,
        on_publication: Callable[[Publication], None],
        bounds: SweepBounds = UNBOUNDED,
    ) -> SweepReport:
        """Complete the open sequences that are due and whose lease is free, longest waiting first."""
        return Sweep(self.store, self.clock, self.say, self._recover, on_publication).run(jobs, bounds)

    def _recover(self, sequence: SequenceRecord) -> Recovered:
        with self._hold_lane(sequence) as (keeper, lease):
            try:
                self._check_log(sequence, lease)
                return recover_lane(self.driver(keeper), self.abandonment(), lease)
            except FencedError:
                raise
            except Exception as error:
                self._defer(sequence, lease, error)
                raise

    def _defer(self, sequence: SequenceRecord, lease: Lease, error: Exception) -> None:
        """Put the sequence behind the others, also if the failure does not count as a try."""
        try:
            self.store.defer(sequence.sequence_id, fence=lease.fence, error=str(error), retry_in_s=DEFERRED_S)
        except GobblinError as second:
            self.say(f"{sequence.urn}: its recovery could not be put off: {second}")

    def resume(self, sequence_id: SequenceId) -> Recovered:
        """Try a BLOCKED sequence again at once, on a person's request. ConflictError for one in another state."""
        sequence = self.store.get(sequence_id)
        _require_way(sequence, SequenceEvent.RESUME)
        with self._hold_lane(sequence) as (keeper, lease):
            self._check_log(sequence, lease)
            self.store.resume(sequence_id, fence=lease.fence)
            return recover_lane(self.driver(keeper), self.abandonment(), lease)

    def abandon(self, sequence_id: SequenceId, *, reason: str) -> None:
        """Abandon a sealed sequence, on a person's request; the next run does its work again.

        ConflictError for one that is not sealed, or is over.
        """
        sequence = self.store.get(sequence_id)
        _require_way(sequence, SequenceEvent.ABANDON)
        with self._hold_lane(sequence) as (_keeper, lease):
            self._check_log(sequence, lease)
            self.abandonment().begin(sequence, lease, reason=reason)

    def list_unsettled(self, sequence_id: SequenceId) -> Sequence[UnsettledName]:
        """The names of a sealed sequence that can't be taken back as they are now. Nothing is changed."""
        sequence = self.store.get(sequence_id)
        files = require_named_files(self.open_file_system(sequence.root_uri)[0])
        located: dict[str, str] = {}
        for attempt in self.store.list_attempts(sequence_id):
            names = [captured_directory(attempt.staging_path, each) for each in sorted(attempt.cleanup_fences)]
            at = next(filter(files.is_directory, [attempt.staging_path, *names]), attempt.staging_path)
            located[attempt.staging_path] = at
        with StepPorts(self.open_file_system) as ports:
            world = StepWorld(files, ports, located)
            found = [
                step.find_unsettled(world)
                for segment in self.store.read_segments(sequence_id)
                for step in decode_segment(segment.payload, segment.digest)
            ]
        return sorted(filter(None, found), key=lambda each: each.path)

    def repair(self, sequence_id: SequenceId, keep: Keep, *, reason: str) -> NamedRepair:
        """Abandon a sealed sequence at given names, also where names can't be taken back: they keep what ``keep`` says.

        Killed half-way, it is done again. RejectedError for sequences at other names.
        """
        sequence = self.store.get(sequence_id)
        if not sequence.is_at_given_names:
            raise RejectedError(
                f"sequence {sequence_id} publishes at names of its own",
                field="sequence",
                hint=f"`gobblin-assets commit abandon {sequence_id}` takes it back.",
            )
        with self._hold_lane(sequence) as (_keeper, lease):
            self._check_log(sequence, lease)
            root = self.open_file_system(sequence.root_uri)[1]
            urn, job = encode_segment(sequence.urn), encode_segment(sequence.job)
            aside = "/".join((root, *job, SET_ASIDE_NAME, *urn, f"{lease.fence:020d}"))
            repair = NamedRepair(keep, root.rpartition("/")[0], aside)
            self.abandonment().begin(sequence, lease, reason=reason, repair=repair)
        return repair

    def clean(
        self, state: DatasetState, *, root_uri: str, retire_grace_s: float, fold: FoldBounds = DEFAULT_FOLD
    ) -> Cleaned:
        """Remove the files of dead attempts and retired generations of one dataset, which is published at ``root_uri``.

        Sequences that a dead owner was building are ended first; old publications are folded.
        """
        with self.hold(state.dataset_id, state.urn) as (keeper, lease):
            fs, root = self.open_file_system(root_uri)
            # With an older log, ending a sequence would abandon what was published long ago.
            check_log(self.store, fs, root, state.job, state.urn, lease)
            self._abort_unsealed(lease)
            cleanup = Cleanup(self.store, self.open_file_system, self.interrupt, keeper.require)
            return cleanup.clean(lease, root_uri=root_uri, retire_grace_s=retire_grace_s, fold=fold)

    def _abort_unsealed(self, lease: Lease) -> None:
        for sequence in self.store.find_unfinished(lease.dataset_id):
            if sequence.state is SequenceState.BUILDING and sequence.lane_id == lease.lane_id:
                self.store.abort(sequence.sequence_id, fence=lease.fence, error=LEFT_UNSEALED)

    def _check_log(self, sequence: SequenceRecord, lease: Lease) -> None:
        fs, root = self.open_file_system(sequence.root_uri)
        check_log(self.store, fs, root, sequence.job, sequence.urn, lease)

    def driver(self, keeper: LeaseKeeper) -> Driver:
        """The driver for work under a lease of this keeper."""
        return Driver(self.store, self.open_file_system, keeper.require, self.tries_max, self.clock.sleep)

    def abandonment(self) -> Abandonment:
        """The abandonment for work under a lease of this keeper."""
        return Abandonment(self.store, self.open_file_system, self.interrupt)

    @contextmanager
    def hold(
        self, dataset_id: DatasetId, urn: DatasetUrn, *, ttl_s: float | None = None
    ) -> Iterator[tuple[LeaseKeeper, Lease]]:
        """Hold a dataset as a whole during the block, and keep its lease alive. ConflictError names another holder.

        ``ttl_s`` counts if ``lease_ttl_s`` is None.
        """
        keeper = self._new_keeper(ttl_s)
        taken = keeper.take([dataset_id], self.holder)
        if not taken:
            raise self._busy(dataset_id, urn, self.leases.find_holder(dataset_id))
        with self._keeping(keeper):
            yield keeper, taken[0]

    @contextmanager
    def hold_lanes(self, dataset_id: DatasetId, urn: DatasetUrn) -> Iterator[tuple[LeaseKeeper, Sequence[Lease]]]:
        """The same by all lanes of the dataset, each under a lease of its own."""
        keeper = self._new_keeper(None)
        lane_ids = self.store.list_lane_ids(dataset_id)
        taken = keeper.take_lanes(lane_ids, self.holder)
        if len(taken) < len(lane_ids):
            keeper.release(taken)
            raise self._busy(dataset_id, urn, self.leases.find_holder(dataset_id))
        with self._keeping(keeper):
            yield keeper, taken

    @contextmanager
    def _hold_lane(self, sequence: SequenceRecord) -> Iterator[tuple[LeaseKeeper, Lease]]:
        """``hold`` for the sequence's lane alone: others may work on the other lanes."""
        keeper = self._new_keeper(sequence.lease_ttl_s)
        taken = keeper.take_lanes([sequence.lane_id], self.holder)
        if not taken:
            status = self.leases.get_status(sequence.lane_id)
            if not status.is_live:
                status = self.leases.find_holder(sequence.dataset_id)
            raise self._busy(sequence.dataset_id, sequence.urn, status)
        with self._keeping(keeper):
            yield keeper, taken[0]

    def _new_keeper(self, ttl_s: float | None) -> LeaseKeeper:
        lasting_s = self.lease_ttl_s or ttl_s or LEASE_TTL_S
        return LeaseKeeper(self.leases, self.clock, ttl_s=lasting_s, say=self.say)

    def _busy(self, dataset_id: DatasetId, urn: DatasetUrn, status: LeaseStatus) -> DatasetBusyError:
        return DatasetBusyError(
            f"{urn} is being worked on by {status.describe_holder()}",
            hint="Wait for that process to end, or stop it.",
            dataset_id=dataset_id,
        )

    @contextmanager
    def _keeping(self, keeper: LeaseKeeper) -> Iterator[None]:
        keeper.start()
        try:
            yield
        finally:
            keeper.stop()


def _require_way(sequence: SequenceRecord, event: SequenceEvent) -> None:
    """ConflictError, with what a person does instead, if the sequence's state has no such way out.

    An early look: the log decides again under its locks.
    """
    if (sequence.state, event) in EDGES or sequence.state is target_of(event):
        return
    raise ConflictError(
        f"sequence {sequence.sequence_id} of {sequence.label} is {sequence.state}: there is nothing to {event}",
        hint=_describe_other_way(sequence),
        sequence_id=str(sequence.sequence_id),
    )


def _describe_other_way(sequence: SequenceRecord) -> str:
    match sequence.state:
        case SequenceState.BUILDING if sequence.lane_id == sequence.dataset_id:
            command = f"`gobblin-assets cleanup --job {sequence.job} --dataset {sequence.urn}`"
            return f"Nothing of it is published. If its run has died, {command} ends it, as the next run would."
        case SequenceState.BUILDING:
            return "Nothing of it is published. If its worker has died, the next worker of the sink ends it."
        case SequenceState.ABANDONING:
            return f"`gobblin-assets commit abandon {sequence.sequence_id} --reason …` goes on with that."
        case SequenceState.ABORTED:
            return "It is over, and nothing of it is published."
        case _:
            return "It is published. `gobblin-assets run … --mode refresh` reads a partition of a table again."
