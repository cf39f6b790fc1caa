"""Reconciliation: a person reconciles the storage with a log that is older than the storage.

There are two ways. *Adopt* executes the lost sequences again, through the ordinary transactions, under a new fence and
with their own ids: their files are there already, so every step is found done, and ledger, watermarks and versions
end as they were. *Set aside* moves files and markers that the log does not know out of readers' sight and deletes
nothing; the next run reads those rows again from the restored watermark (``setting_aside``).

Order. The fence is raised above every fence that storage shows, then the dataset is taken: a process with an old fence
can write nothing more. Then everything is examined again under the lease, and carried out. If the command is killed,
the dataset stays stopped until the log explains its last marker, and the same command goes on from there: a lost
sequence that was begun again is begun once more; a sequence that was sealed again is an ordinary open sequence; of the
names that are set aside, the markers go last. Steps that publish no files are undone before anything is moved.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from gobblin_assets.commit.attempts import SET_ASIDE_NAME, staging_root
from gobblin_assets.commit.examination import Examination, LogFinding, Remembered, is_replaced
from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.commit.sequence import NewAttempt, NewSequence, Publication, SealedSequence, StagedAttempt
from gobblin_assets.commit.setting_aside import ENDED, SettingAside
from gobblin_assets.errors import ConflictError, RetryableError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.path_names import encode_segment
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import DatasetId, SequenceId
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.state.leases import Lease, LeaseKeeper

_CAPTURED: Final = re.compile(r"\.captured-(\d+)(?:/|$)")


class Way(StrEnum):
    """What to do with the sequences that the log forgot."""

    ADOPT = "adopt"
    SET_ASIDE = "set-aside"


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The result for one dataset: ``adopted`` publications, or ``moved`` names, now below ``aside``.

    ``ended``: publications that the log had open, and that the lost history had ended.
    """

    urn: DatasetUrn
    dataset_id: DatasetId
    fence: int
    adopted: tuple[Publication, ...] = ()
    moved: tuple[str, ...] = ()
    aside: str | None = None
    ended: tuple[SequenceId, ...] = ()


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """``root_uri`` is the job's destination; adopted sequences belong to the run of ``operations.holder``."""

    operations: LogOperations
    examination: Examination
    root_uri: str

    def carry_out(self, urn: DatasetUrn, way: Way) -> Reconciled:
        """Reconcile one dataset. If the process is killed, the dataset stays stopped, and the next call goes on.

        Raises:
            ConflictError: another process holds the dataset, or its lost history can't be adopted.
            RetryableError: another process publishes to the same place meanwhile, under a newer fence.

        """
        examination = self.examination
        finding = examination.look_at(urn, thoroughly=True)
        dataset_id = examination.datasets.register(examination.job, [urn])[urn]
        if way is Way.ADOPT:
            _require_adoptable(finding)
        floor = max(finding.storage_fence, self._captured_fence())
        for lane_id in self.operations.store.list_lane_ids(dataset_id):
            self.operations.leases.raise_fence(lane_id, floor=floor)
        reach(Failpoint.FENCE_RAISED)
        with self.operations.hold(dataset_id, urn) as (keeper, lease):
            # Before the lease was ours, the storage may have changed.
            finding = examination.look_at(urn, thoroughly=True)
            if max(floor, finding.storage_fence) >= lease.fence:
                raise RetryableError(
                    f"{urn} is published under fence {max(floor, finding.storage_fence)} by somebody else meanwhile",
                    hint="Stop the other process that publishes to this destination, then reconcile again.",
                    urn=urn,
                )
            if way is Way.ADOPT:
                adopted = self._adopt(finding, dataset_id, keeper, lease)
                return Reconciled(urn, dataset_id, lease.fence, adopted=adopted)
            done = self._set_aside(finding, dataset_id, keeper, lease)
            moved, ended = tuple(done.moved), tuple(done.ended)
            return Reconciled(urn, dataset_id, lease.fence, moved=moved, aside=done.aside, ended=ended)

    def _captured_fence(self) -> int:
        """The newest fence in the names of the job's captured staging, whose dataset the log may have forgotten."""
        found = self.examination.fs.list_files(staging_root(self._job_directory()))
        return max((int(fence) for file in found for fence in _CAPTURED.findall(file.path)), default=0)

    def _job_directory(self) -> str:
        return "/".join((self.examination.root, *encode_segment(self.examination.job)))

    # Adopt ----------------------------------------------------------------------------------------------

    def _adopt(
        self, finding: LogFinding, dataset_id: DatasetId, keeper: LeaseKeeper, lease: Lease
    ) -> tuple[Publication, ...]:
        _require_adoptable(finding)
        if finding.chain:
            self._end_what_history_ended(finding, dataset_id, lease)
        published = []
        for number, each in enumerate(finding.chain):
            keeper.require(lease)
            published.append(self._adopt_one(each, finding.chain[number + 1 :], dataset_id, keeper, lease))
            reach(Failpoint.LOST_SEQUENCE_ADOPTED)
        return tuple(published)

    def _end_what_history_ended(self, finding: LogFinding, dataset_id: DatasetId, lease: Lease) -> None:
        """End unfinished sequences of the log without a marker on storage: they were never published."""
        store, chain = self.operations.store, {each.sequence_id for each in finding.chain}
        for sequence in store.find_unfinished(dataset_id):
            if sequence.sequence_id in chain:
                continue
            match sequence.state:
                case SequenceState.BUILDING:
                    store.abort(sequence.sequence_id, fence=lease.fence, error=ENDED)
                case SequenceState.ABANDONING:
                    self.operations.abandonment().carry_out(sequence, lease)
                case _:
                    reason = "given up in the history that was lost"
                    self.operations.abandonment().begin(sequence, lease, reason=reason)

    def _adopt_one(
        self,
        each: Remembered,
        later: Sequence[Remembered],
        dataset_id: DatasetId,
        keeper: LeaseKeeper,
        lease: Lease,
    ) -> Publication:
        store = self.operations.store
        if each.is_forgotten and each.sealed is not None:
            self._seal_again(each.sealed, dataset_id, lease, begun=each.known is not None)
        elif each.known is not None and each.known.state is SequenceState.BLOCKED:
            store.resume(each.sequence_id, fence=lease.fence)
        if is_replaced(each, later):
            # It was finished, or the sequence that replaced it could not have been sealed. Cleanup may have removed its
            # files since, so there is nothing to verify; the sequence that replaced it retires it again.
            store.finish(each.sequence_id, fence=lease.fence)
            return store.load_publications(each.sequence_id)[0]
        return self.operations.driver(keeper).publish(each.sequence_id, lease)

    def _seal_again(self, sealed: SealedSequence, dataset_id: DatasetId, lease: Lease, *, begun: bool) -> None:
        store, order = self.operations.store, sealed.order
        if begun:
            store.continue_building(order.sequence_id, fence=lease.fence)
        else:
            store.begin(
                NewSequence(
                    sequence_id=order.sequence_id,
                    dataset_id=dataset_id,
                    run_id=self.operations.holder.run_id,
                    partition=order.partition,
                    mode=sealed.mode,
                    replaces=sealed.replaces,
                    fence=lease.fence,
                    root_uri=self.root_uri,
                )
            )
        reach(Failpoint.LOST_SEQUENCE_BEGUN)
        for attempt in sealed.attempts:
            store.register_attempt(
                NewAttempt(
                    attempt_id=attempt.attempt_id,
                    sequence_id=order.sequence_id,
                    dataset_id=dataset_id,
                    fence=lease.fence,
                    multi_work_unit=attempt.multi_work_unit,
                    try_number=attempt.try_number,
                    staging_path=attempt.staging_path,
                )
            )
            staged = StagedAttempt(
                attempt.attempt_id, order.sequence_id, lease.fence, attempt.segments, attempt.segment_ids
            )
            store.stage(staged)
        store.seal(replace(order, dataset_id=dataset_id, fence=lease.fence))
        reach(Failpoint.LOST_SEQUENCE_SEALED)

    def _set_aside(self, finding: LogFinding, dataset_id: DatasetId, keeper: LeaseKeeper, lease: Lease) -> SettingAside:
        job_directory = self._job_directory()
        setting = SettingAside(
            operations=self.operations,
            examination=self.examination,
            finding=finding,
            dataset_id=dataset_id,
            fence=lease.fence,
            require=lambda: keeper.require(lease),
            job_directory=job_directory,
            aside="/".join((job_directory, SET_ASIDE_NAME, *encode_segment(finding.urn), f"{lease.fence:020d}")),
        )
        setting.carry_out()
        return setting


def _require_adoptable(finding: LogFinding) -> None:
    if finding.refusal is not None:
        raise ConflictError(
            f"the lost history of {finding.urn} can't be adopted: {finding.refusal}",
            hint="Reconcile with --set-aside: nothing is deleted, and the rows are read again.",
            urn=finding.urn,
        )
