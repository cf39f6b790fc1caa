"""Reconciliation: a person reconciles the storage with a log that is older than the storage.

There are two ways. *Adopt* executes the lost sequences again, through the ordinary transactions, under a new fence and
with their own ids (``adoption``). *Set aside* moves files and markers that the log does not know out of readers' sight
and deletes nothing; the next run reads those rows again from the restored watermark (``setting_aside``).

Order. The fence is raised above every fence that storage shows, then the dataset is taken: a process with an old fence
can write nothing more. Then everything is examined again under the lease, and carried out. If the command is killed,
the dataset stays stopped until the log explains its last marker, and the same command goes on from there: a lost
sequence that was begun again is begun once more; a sequence that was sealed again is an ordinary open sequence; of the
names that are set aside, the markers go last. Steps that publish no files are undone before anything is moved.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gobblin_assets.commit.adoption import Adoption
from gobblin_assets.commit.attempts import SET_ASIDE_NAME, staging_root
from gobblin_assets.commit.examination import Examination, LogFinding
from gobblin_assets.commit.lanes import LaneStore
from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.commit.sequence import Publication
from gobblin_assets.commit.setting_aside import SettingAside
from gobblin_assets.errors import ConflictError, RetryableError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.path_names import encode_segment
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
    """The reconciliation of a job's datasets.

    ``root_uri`` is its destination; adopted sequences belong to the run of ``operations.holder``.
    """

    operations: LogOperations
    examination: Examination
    lanes: LaneStore
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
            if finding.lane_count > len(self.operations.store.list_lane_ids(dataset_id)):
                # The sink was scaled after the backup.
                self.lanes.spread(dataset_id, finding.lane_count)
        floor = max(finding.storage_fence, self._captured_fence())
        for lane_id in self.operations.store.list_lane_ids(dataset_id):
            self.operations.leases.raise_fence(lane_id, floor=floor)
        reach(Failpoint.FENCE_RAISED)
        with self._hold(dataset_id, urn, by_lanes=way is Way.ADOPT and finding.lane_count > 1) as (keeper, leases):
            # Before the leases were ours, the storage may have changed.
            finding = examination.look_at(urn, thoroughly=True)
            fence = min(lease.fence for lease in leases.values())
            if max(floor, finding.storage_fence) >= fence or (way is Way.ADOPT and finding.lane_count > len(leases)):
                raise RetryableError(
                    f"{urn} is published under fence {max(floor, finding.storage_fence)} by somebody else meanwhile",
                    hint="Stop the other process that publishes to this destination, then reconcile again.",
                    urn=urn,
                )
            if way is Way.ADOPT:
                _require_adoptable(finding)
                adoption = Adoption(
                    self.operations, self.lanes, finding, dataset_id, self.root_uri, keeper, leases
                )  # fmt: skip
                return Reconciled(urn, dataset_id, fence, adopted=adoption.carry_out())
            done = self._set_aside(finding, dataset_id, keeper, leases[0])
            moved, ended = tuple(done.moved), tuple(done.ended)
            return Reconciled(urn, dataset_id, fence, moved=moved, aside=done.aside, ended=ended)

    @contextmanager
    def _hold(
        self, dataset_id: DatasetId, urn: DatasetUrn, *, by_lanes: bool
    ) -> Iterator[tuple[LeaseKeeper, Mapping[int, Lease]]]:
        """The leases, by lanes. What a lane published is adopted under its own lease, and nobody holds another lane."""
        if not by_lanes:
            with self.operations.hold(dataset_id, urn) as (keeper, lease):
                yield keeper, {0: lease}
            return
        with self.operations.hold_lanes(dataset_id, urn) as (keeper, taken):
            numbers = {lane.lane_id: lane.number for lane in self.lanes.load(dataset_id)[dataset_id].lanes}
            yield keeper, {numbers[lease.lane_id]: lease for lease in taken}

    def _captured_fence(self) -> int:
        """The newest fence in the names of the job's captured staging, whose dataset the log may have forgotten."""
        found = self.examination.fs.list_files(staging_root(self._job_directory()))
        return max((int(fence) for file in found for fence in _CAPTURED.findall(file.path)), default=0)

    def _job_directory(self) -> str:
        return "/".join((self.examination.root, *encode_segment(self.examination.job)))

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
