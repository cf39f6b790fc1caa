"""Begins new copies of tables whose change log can't go on, or is to begin anew: ``gobblin-assets sink recopy``.

The vnode of a new copy is published at its beginning, as an empty cut of the dataset's lane. The next worker that
follows the log finds it, makes the copy, and goes on from there. Published rows of earlier copies stay.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.commit.lanes import LaneStore
from gobblin_assets.commit.segment import combine_digests
from gobblin_assets.commit.sequence import KeyMove, NewSequence, Publication, PublishedInterval, SealOrder
from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.jobs.sink.sink_rules import is_one_stream
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.state import DatasetId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.run.destination import Destination
from gobblin_assets.run.maintenance_run import HeldDataset
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.connection import OpensEpochs
from gobblin_assets.sources.log_port import CopiedLog
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.partition_keys import open_partition

_LOOK_S_MAX: Final = 10.0
"""A worker that tries a lane again after a back-off, looks at its log and gives it back is done by then."""

_ASK_EVERY_S: Final = 0.2


def check_copied_job(job: JobSpec) -> None:
    """RejectedError for a job whose datasets do not begin with copies."""
    if not is_one_stream(job):
        raise _refuse_copies()


def _refuse_copies() -> RejectedError:
    return RejectedError(
        "only the change logs of databases begin with a copy",
        field="source.type",
        hint="A topic is read anew by: gobblin-assets run JOB_FILE --start-over.",
    )


def await_free(lanes: LaneStore, datasets: Mapping[DatasetUrn, DatasetId], clock: Clock) -> None:
    """ConflictError if a process holds one of the datasets for longer than a try after a back-off takes.

    A worker that follows a dataset would go on with the copy that it knows. A dataset that backs off is taken for a
    moment again and again, and who does what the worker says must not meet just such a moment.
    """
    until = clock.monotonic() + _LOOK_S_MAX
    while (found := _find_held(lanes, datasets)) is not None:
        urn, owner = found
        if clock.monotonic() >= until:
            raise ConflictError(
                f"{urn} is being worked on by {owner}",
                hint="End the workers behind a cut first: gobblin-assets sink drain JOB_FILE.",
                urn=urn,
            )
        clock.sleep(_ASK_EVERY_S)


def _find_held(lanes: LaneStore, datasets: Mapping[DatasetUrn, DatasetId]) -> tuple[DatasetUrn, str | None] | None:
    found = lanes.load(*datasets.values())
    held = (
        (urn, lane.owner) for urn, dataset_id in datasets.items() for lane in found[dataset_id].lanes if lane.is_live
    )
    return next(held, None)


@dataclass(frozen=True, slots=True)
class Recopying:
    """The beginning of new copies, of one job, whose destination and log the caller has checked."""

    job: JobSpec
    specs: Mapping[DatasetUrn, DatasetSpec]
    connection: OpensEpochs
    stores: Stores
    destination: Destination
    clock: Clock

    def begin(self, held: HeldDataset) -> Sequence[Publication]:
        """Publish the beginning of the next copy; nothing if that was done, and its copy is not made yet.

        RejectedError if the log can't be followed behind a copy either.
        """
        source = self.connection.open_epochs(self.job, held.urn, self.specs[held.urn])
        if not isinstance(source, CopiedLog):
            raise _refuse_copies()
        state = self.stores.datasets.load(JobName(self.job.job), [held.urn])[held.urn]
        begins = source.begin_copy(state).vnodes
        new = {vnode: begin.position for vnode, begin in begins.items() if begin.watermark != begin.position}
        return [self._publish(held, new)] if new else []

    def _publish(self, held: HeldDataset, positions: Mapping[str, int]) -> Publication:
        store, lease, now = self.stores.commits, held.lease, self.clock.now()
        sequence = NewSequence(
            sequence_id=SequenceId(self.clock.new_id()),
            dataset_id=lease.dataset_id,
            run_id=held.run_id,
            partition=open_partition(self.specs[held.urn], now).key or "",
            mode=Mode.APPEND,
            replaces=False,
            fence=lease.fence,
            root_uri=self.destination.root_uri,
            lease_ttl_s=self.job.lease.ttl_s,
        )
        self.destination.require()
        self.stores.lanes.place(lease, sorted(positions))
        base_version = next(
            lane.version for lane in self.stores.lanes.load(lease.dataset_id)[lease.dataset_id].lanes if not lane.number
        )
        store.begin(sequence)
        held.require(lease)
        store.seal(self._order(sequence, held.urn, positions, base_version, now))
        publication = held.driver.publish(sequence.sequence_id, lease)
        # Empty cuts of a sink are not reported.
        store.mark_announced(sequence.sequence_id)
        return publication

    def _order(
        self,
        sequence: NewSequence,
        urn: DatasetUrn,
        positions: Mapping[str, int],
        base_version: int,
        now: dt.datetime,
    ) -> SealOrder:
        return SealOrder(
            sequence_id=sequence.sequence_id,
            dataset_id=sequence.dataset_id,
            partition=sequence.partition,
            fence=sequence.fence,
            base_version=base_version,
            winners=(),
            digest=combine_digests([]),
            segment_count=0,
            row_count=0,
            moves=tuple(_begin_at(vnode, position) for vnode, position in positions.items()),
            complete=True,
            details={
                "uri": self.destination.uri_of(urn, Role.DATA),
                "rows_read": 0,
                # As of every vnode that begins: no epoch has ended yet.
                "epoch": 0,
                "barrier_at": now.isoformat(),
                # The dataset's facts stay those of the rows that are published, until the copy is.
                "notes": ["a new copy begins"],
            },
        )


def _begin_at(vnode: str, position: int) -> KeyMove:
    at = long_watermark(position)
    return KeyMove(vnode, "", None, at, (PublishedInterval(Interval(at, at)),))
