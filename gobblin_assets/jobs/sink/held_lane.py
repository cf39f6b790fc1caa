"""A lane that this worker holds, and the attempt that its open files belong to."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from gobblin_assets.jobs.sink.lane_writer import Cut, LaneWriter
from gobblin_assets.model.state import AttemptId, DatasetId, LaneId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.rows.new_files import NewFiles
from gobblin_assets.run.output_names import OutputNames
from gobblin_assets.state.leases import Lease


@dataclass(frozen=True, slots=True)
class LaneAttempt:
    """A sequence that is being built, with its newest attempt. ``ends_at``: the end of the window that it belongs to.

    ``is_registered``: whether the log has the attempt.
    """

    sequence_id: SequenceId
    attempt_id: AttemptId
    partition: str
    ends_at: dt.datetime | None
    staging: str
    names: OutputNames | None
    is_registered: bool = True
    files: dict[Role, NewFiles] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LaneDescription:
    """What a publication says of its dataset. ``file_schemas``: as Spark's JSON.

    ``details``: of each first publication, and of each that has other ``columns`` or ``facts`` than the one before.
    ``columns`` None: they are not known yet.
    """

    file_schemas: Mapping[Role, object]
    columns: object
    facts: Mapping[str, object]
    details: Mapping[str, object]


@dataclass(slots=True)
class HeldLane:
    """``positions``: where each vnode is published up to; None: nothing of it yet. ``read_to``: its last barrier.

    ``is_reread``: the writer only counts records, and Spark reads them again at the cut. ``described``: what the lane's
    last publication by this worker said of the dataset.
    """

    lease: Lease
    number: int
    urn: DatasetUrn
    dataset_id: DatasetId
    version: int
    writer: LaneWriter
    is_reread: bool = False
    positions: dict[str, int | None] = field(default_factory=dict)
    read_to: dict[str, int] = field(default_factory=dict)
    epoch: int | None = None
    attempt: LaneAttempt | None = None
    described: LaneDescription | None = None
    # What the lane's next cut is forced for.
    is_leaving: bool = False
    moves: Mapping[str, int] = field(default_factory=dict)
    joining: frozenset[str] = frozenset()

    @property
    def lane_id(self) -> LaneId:
        return self.lease.lane_id

    @property
    def label(self) -> str:
        return f"{self.urn} lane {self.number}"

    @property
    def wants_change(self) -> bool:
        return self.is_leaving or bool(self.moves) or bool(self.joining)


@dataclass(frozen=True, slots=True)
class LaneCut:
    """A cut of a lane that is to be published."""

    lane: HeldLane
    cut: Cut
