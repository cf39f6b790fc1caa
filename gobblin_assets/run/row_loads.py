"""Plans and stages the loads of a round: one step for each sequence whose rows go into a table, a topic or the like.

A task stages files, and knows neither the other tasks of its sequence nor the version that the sequence makes. So one
more attempt of the sequence has the step that loads the files of all attempts that are published. A mark of a lane
answers by the sequence whether its rows are there: of two steps of one sequence, the second would be skipped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from gobblin_assets.commit.segment import Segment, combine_digests, encode_segments
from gobblin_assets.commit.sequence import NewAttempt, SealOrder, StagedAttempt
from gobblin_assets.commit.store import SequenceBuilder
from gobblin_assets.errors import CorruptionError
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.state import AttemptId
from gobblin_assets.model.urn import Role
from gobblin_assets.run.destination import Destination, Target
from gobblin_assets.run.slices import Slice, StagedTask, partition_text

_NUMBER: Final = 1_000_000
"""In place of a MultiWorkUnit's number: no run has as many."""


@dataclass(frozen=True, slots=True)
class RowLoad:
    """The attempt of a sequence that loads its rows, and the seal that has it among the winners."""

    slice: Slice
    order: SealOrder
    attempt_id: AttemptId
    segment: Segment


@dataclass(frozen=True, slots=True)
class RowLoads:
    """The loads of a run's slices. The destination is one that ``loads_rows``."""

    destination: Destination
    store: SequenceBuilder
    clock: Clock

    def plan(self, slice_: Slice, order: SealOrder) -> RowLoad | None:
        """The load of what a seal would publish; None: there is nothing to load. It may connect to the destination."""
        winners = [task for task in slice_.staged if task.attempt_id in order.winners]
        target = Target(
            slice_.urn,
            partition_text(slice_.partition),
            slice_.sequence_id,
            _NUMBER,
            version=order.base_version + 1,
            # A partition that was published before is refused, and one that was not replaces nothing.
            replaces=slice_.plan.replaces and slice_.partition.key is None,
        )
        outputs = [each for task in winners for each in task.extracted.outputs if each.role is Role.DATA]
        steps = list(self.destination.steps_for(outputs, target))
        if not steps:
            return None
        segments = encode_segments(steps, role=Role.DATA, partition=target.partition, file_schema=_find_schema(winners))
        if len(steps) != 1 or len(segments) != 1:
            raise CorruptionError(f"{slice_.label}: {len(steps)} steps would load one sequence, and one is skipped")
        return RowLoad(slice_, order, AttemptId(self.clock.new_id()), segments[0])

    def stage(self, loads: Sequence[RowLoad]) -> None:
        """Register and stage the attempts. Repeating it is harmless."""
        new = [
            NewAttempt(
                attempt_id=load.attempt_id,
                sequence_id=load.slice.sequence_id,
                dataset_id=load.slice.state.dataset_id,
                fence=load.slice.lease.fence,
                multi_work_unit=_NUMBER,
                try_number=1,
                staging_path=self.destination.stage(load.attempt_id),
            )
            for load in loads
        ]
        staged = [
            StagedAttempt(
                attempt_id=load.attempt_id,
                sequence_id=load.slice.sequence_id,
                fence=load.slice.lease.fence,
                segments=(load.segment,),
                # The attempt has one segment, so that a second call names the same one.
                segment_ids=(load.attempt_id,),
            )
            for load in loads
        ]
        self.store.register_attempt(*new)
        self.store.stage(*staged)

    def seal_of(self, load: RowLoad) -> SealOrder:
        """The seal with the load."""
        tasks = [task for task in load.slice.staged if task.attempt_id in load.order.winners]
        segments = [*(segment for task in tasks for segment in task.segments), load.segment]
        return replace(
            load.order,
            winners=(*load.order.winners, load.attempt_id),
            digest=combine_digests(segment.digest for segment in segments),
            segment_count=len(segments),
            row_count=sum(segment.row_count for segment in segments),
        )


def _find_schema(winners: Sequence[StagedTask]) -> object:
    """Of the rows of data, as the last task has it that wrote some."""
    found = [task.extracted.file_schemas.get(Role.DATA) for task in winners]
    return next((schema for schema in reversed(found) if schema is not None), None)
