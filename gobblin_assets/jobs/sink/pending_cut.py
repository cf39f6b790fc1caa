"""Cuts on their way into the log."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from gobblin_assets.commit.segment import Segment
from gobblin_assets.commit.sequence import KeyMove, PublishedInterval
from gobblin_assets.jobs.sink.dataset_sink import HeldLane, LaneAttempt
from gobblin_assets.jobs.sink.lane_description import LaneDescription, RereadRows
from gobblin_assets.jobs.sink.lane_files import CutFile
from gobblin_assets.jobs.sink.lane_writer import Cut, VnodeSpan
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import Role
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.run.job_kind import Output


@dataclass(slots=True, eq=False)
class PendingCut:
    """A cut on its way into the log, and what its lane wrote for it.

    ``attempt`` None: the lane never opened a file. ``reread``: what Spark made of the records, if it did.
    """

    lane: HeldLane
    cut: Cut
    sequence_id: SequenceId
    partition: str
    attempt: LaneAttempt | None
    reread: RereadRows | None = None
    description: LaneDescription | None = None
    segments: tuple[Segment, ...] = ()
    segment_ids: tuple[uuid.UUID, ...] = ()

    @property
    def row_counts(self) -> Mapping[Role, int]:
        if self.reread is None:
            return self.cut.row_counts
        return {role: count for role in Role if (count := self.reread.staged.row_count(role))}

    @property
    def rows_read(self) -> int:
        """How many rows the files must have; never counted in the files."""
        return sum(self.cut.row_counts.values()) if self.reread is None else self.reread.staged.rows_read

    @property
    def is_news(self) -> bool:
        """Whether it says more of the dataset than the lane's last publication."""
        return self.description is not None and self.description.has_news(self.lane.described)

    def list_outputs(self) -> list[Output]:
        if self.attempt is None:
            return []
        return list(self._list_files(self.attempt) if self.reread is None else self.reread.staged.outputs)

    def _list_files(self, attempt: LaneAttempt) -> list[Output]:
        def place(file: CutFile) -> tuple[str, str]:
            return file.role.value, file.partition_path

        outputs = []
        for (role, path), files in groupby(sorted(self.cut.files, key=place), key=place):
            found = [file.finished for file in files]
            outputs.append(
                Output(
                    role=Role(role),
                    path="/".join(filter(None, (attempt.staging, role, path))),
                    partition_path=path,
                    files=tuple(file.file for file in found),
                    details=tuple(file.step for file in found if file.step is not None),
                )
            )
        return outputs

    def list_moves(self) -> tuple[KeyMove, ...]:
        return tuple(_move_of(self.lane, vnode, span) for vnode, span in self.cut.spans.items())


def _move_of(lane: HeldLane, vnode: str, span: VnodeSpan) -> KeyMove:
    """From where the vnode is published to where the cut ends. What a rule of the log leaves out is in no interval."""
    published = lane.positions.get(vnode)
    return KeyMove(
        key=vnode,
        partition="",
        old=None if published is None else long_watermark(published),
        new=long_watermark(span.end, span.history),
        intervals=(PublishedInterval(Interval(long_watermark(span.start), long_watermark(span.end))),),
    )
