"""The store of what was delivered to sinks of events, as a port.

Nothing is written for an event when a sequence is finished: the sequences themselves say what is to be delivered.
The publications of a dataset have versions without gaps, each visible before the next. So one number for each dataset
and sink says what was delivered to the sink. A publication that a recovery finished has a version above that number,
like every other. Failures are seldom and have no order: the log remembers each delivered one.
"""

import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from gobblin_assets.model.state import DatasetId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName

FAILURE_DELIVERED_S: Final = 7 * 86_400.0
"""Failures that are older are not delivered: a sink that was away so long learns what is published."""


@dataclass(frozen=True, slots=True)
class UndeliveredPublication:
    """A finished sequence that was not delivered to a sink. ``version``: the dataset's, after it."""

    dataset_id: DatasetId
    sequence_id: SequenceId
    version: int
    done_at: dt.datetime


@dataclass(frozen=True, slots=True)
class UndeliveredFailure:
    """A partition that was not published: its sequence was given up, or its run began none.

    ``subject``: its id, for ``mark_failures``. ``sequence_id`` None: no sequence had begun. ``repeats``: the partition
    failed for the same reason before, in the same hour, and was not well in between.
    """

    subject: uuid.UUID
    dataset_id: DatasetId
    urn: DatasetUrn
    partition: str
    sequence_id: SequenceId | None
    error: str | None
    failed_at: dt.datetime
    repeats: bool


class EventStore(Protocol):
    """Each method is one transaction. Two processes that deliver to one sink may deliver an event twice."""

    def begin(self, dataset_ids: Sequence[DatasetId], sinks: Sequence[str]) -> None:
        """From now on these sinks get these datasets. What was delivered to a sink before stays."""
        ...

    def list_undelivered(self, job: JobName, sink: str, *, limit: int) -> Sequence[UndeliveredPublication]:
        """In order of each dataset's versions; without compactions, folds, and publications without a step.

        A publication becomes a part of a fold only after it was delivered to every sink, or after a week.
        """
        ...

    def mark_delivered(self, sink: str, versions: Sequence[tuple[DatasetId, int]]) -> None:
        """These datasets were delivered to the sink up to these versions. It never goes back."""
        ...

    def list_undelivered_failures(self, job: JobName, sink: str, *, limit: int) -> Sequence[UndeliveredFailure]:
        """The oldest first."""
        ...

    def mark_failures(self, sink: str, failures: Sequence[UndeliveredFailure]) -> None: ...
