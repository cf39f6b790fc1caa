"""The store of what sinks of events were told, as a port.

Nothing is written for an event when a sequence is finished: the sequences themselves say what is to be told. The
publications of a dataset have versions without gaps, each visible before the next. So one number for each dataset and
sink says what the sink was told. What a recovery finished lies above it like everything else. Failures are seldom
and have no order: the log remembers each that was told.
"""

import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from gobblin_assets.model.state import DatasetId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName

FAILURE_TOLD_S: Final = 7 * 86_400.0
"""Failures that are older are told to nobody: a sink that was away so long learns what is published."""


@dataclass(frozen=True, slots=True)
class UntoldPublication:
    """A finished sequence that a sink was not told of. ``version``: the dataset's, after it."""

    dataset_id: DatasetId
    sequence_id: SequenceId
    version: int
    done_at: dt.datetime


@dataclass(frozen=True, slots=True)
class UntoldFailure:
    """A partition that was not published: a sequence that was given up, or a run that came to none.

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
    """Each method is one transaction. Two processes that tell one sink may tell it twice."""

    def begin(self, dataset_ids: Sequence[DatasetId], sinks: Sequence[str]) -> None:
        """From now on these sinks are told of these datasets. What a sink was told before stays."""
        ...

    def list_untold(self, job: JobName, sink: str, *, limit: int) -> Sequence[UntoldPublication]:
        """In order of each dataset's versions; without compactions, folds, and publications without a step.

        A publication becomes a part of a fold only after every sink was told of it, or after a week.
        """
        ...

    def mark_told(self, sink: str, versions: Sequence[tuple[DatasetId, int]]) -> None:
        """The sink was told of these datasets up to these versions. It never goes back."""
        ...

    def list_untold_failures(self, job: JobName, sink: str, *, limit: int) -> Sequence[UntoldFailure]:
        """The oldest first."""
        ...

    def mark_failures(self, sink: str, failures: Sequence[UntoldFailure]) -> None: ...
