"""Gobblin's states as values: of a job's run, of a dataset in it, and of a dataset between runs."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

from gobblin_assets.model.interval import Interval
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.watermark import Watermark

RunId = NewType("RunId", uuid.UUID)
AttemptId = NewType("AttemptId", uuid.UUID)
SequenceId = NewType("SequenceId", uuid.UUID)
LaneId = NewType("LaneId", int)
"""One writer's place in a dataset, with a lease, a version and an open sequence of its own."""
DatasetId = NewType("DatasetId", LaneId)
"""Also the id of the dataset's lane 0, the only lane of a dataset that no sink writes."""
KeyId = NewType("KeyId", int)


class WorkingState(StrEnum):
    """The state of a job's run, or of a WorkUnit.

    A run is RUNNING until it ends; it is COMMITTED if all that it was asked for is published. A WorkUnit is PENDING
    until its task has ended, SUCCESSFUL once it is staged, COMMITTED once it is published; a SKIPPED WorkUnit is not
    read.
    """

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCESSFUL = "SUCCESSFUL"
    COMMITTED = "COMMITTED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"


class DatasetOutcome(StrEnum):
    """The outcome of a run for one dataset partition.

    ``PARTIAL``: a prefix was published under the policy that allows it. ``SKIPPED``: nothing was done; with an error,
    since another process held the dataset, and without one, since nothing was new. ``BLOCKED``: an earlier publication
    waits for a person. ``FENCED``: the lease was lost during the run.
    """

    COMMITTED = "COMMITTED"
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    BLOCKED = "BLOCKED"
    FENCED = "FENCED"


@dataclass(frozen=True, slots=True)
class KeyState:
    """The published position of one watermark key, in one asset partition ("" when there are none)."""

    key_id: KeyId
    name: str
    partition: str
    watermark: Watermark | None


@dataclass(frozen=True, slots=True)
class DatasetState:
    """The state of a dataset between runs, also if the last run did not touch it.

    ``version`` counts finished sequences of lane 0. ``keys`` is indexed by (key name, partition). ``published``: the
    asset partitions that have an active generation or interval. ``ahead``: active intervals that reach beyond their
    key's watermark, ascending, indexed as ``keys``; they come from a window of a log that was read before earlier ones.
    ``source_columns``: the last accepted schema of the source. ``published_columns``: the columns of the last
    publication that knew them. Both map column names to type texts; None before the first. ``source_facts``: plain JSON
    values that the source keeps with the dataset.
    """

    dataset_id: DatasetId
    job: JobName
    urn: DatasetUrn
    version: int
    keys: Mapping[tuple[str, str], KeyState] = field(default_factory=dict)
    published: frozenset[str] = frozenset()
    ahead: Mapping[tuple[str, str], tuple[Interval, ...]] = field(default_factory=dict)
    source_columns: Mapping[str, str] | None = None
    published_columns: Mapping[str, str] | None = None
    source_facts: Mapping[str, object] = field(default_factory=dict)

    def find_watermark(self, key: str, partition: str) -> Watermark | None:
        state = self.keys.get((key, partition))
        return None if state is None else state.watermark
