"""The mark of a lane: what a destination that is no file system knows of the lane's publications. Pure."""

from dataclasses import dataclass
from typing import Final, Protocol

from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.errors import ConflictError, CorruptionError

RECENT_MAX: Final = 64
"""A mark names so many of the lane's last publications. A log that was restored may ask for an older one."""


@dataclass(frozen=True, slots=True)
class MarkPlace:
    """The place of the mark of a lane. ``marks``: the schema of the table of marks, the topic that holds them, or the
    table that has them as properties.

    ``destination``: the identity of the job's staging root. No other log has it, and a log that was restored has it
    again.
    """

    marks: str
    destination: str
    job: str
    dataset: str
    lane: int

    def __str__(self) -> str:
        return f"the mark of lane {self.lane} of {self.dataset} in {self.marks}"


class LoadBatch(Protocol):
    """The load of a publication. ``version``: the lane's, as the publication makes it. ``sequence_id``: as text.

    ``is_marked``: the lane had loaded something, by its mark, when the publication was sealed. False also if that is
    not known.
    """

    @property
    def mark(self) -> MarkPlace: ...

    @property
    def version(self) -> int: ...

    @property
    def sequence_id(self) -> str: ...

    @property
    def row_count(self) -> int: ...

    @property
    def is_marked(self) -> bool: ...


class PlaceGoneError(ConflictError):
    """Rows were loaded, and what they were loaded into, or their mark, is not there any more."""

    def __init__(self, what: str, dataset: str) -> None:
        super().__init__(
            f"{what}. It was renamed, dropped or made anew",
            hint="Nothing was made or loaded. Put it back as it was, under its name, and resume; or go on with what is "
            f"there now, without the rows that are gone: `gobblin-assets sink adopt JOB_FILE --dataset {dataset}`.",
        )


@dataclass(frozen=True, slots=True)
class LaneMark:
    """The mark of a lane.

    ``version``: of its last publication that was loaded. ``recent``: the last ones, the newest first.

    ``given_up``: publications after it that must never be loaded.
    """

    version: int
    recent: tuple[str, ...] = ()
    given_up: tuple[str, ...] = ()

    @property
    def has_loaded(self) -> bool:
        """Whether a publication of the lane was loaded. From then on there always is such a mark."""
        return self.version > 0


def decide_load(mark: LaneMark | None, version: int, sequence_id: str) -> StepVerdict:
    """Whether a publication is there, or may be loaded. The compare-and-set of a load asks the same, under a lock.

    CONFLICT: it was given up, or the lane went on without it.
    """
    if mark is None:
        return StepVerdict.DO
    if sequence_id in mark.recent:
        return StepVerdict.DONE
    if sequence_id in mark.given_up or mark.version >= version:
        return StepVerdict.CONFLICT
    return StepVerdict.DO


def decide_batch(mark: LaneMark | None, batch: LoadBatch) -> StepVerdict:
    """``decide_load`` for a batch. PlaceGoneError if its lane had a mark, and has none: nobody knows what is there."""
    if batch.is_marked and (mark is None or not mark.has_loaded):
        raise PlaceGoneError(f"{batch.mark} is gone", batch.mark.dataset)
    return decide_load(mark, batch.version, batch.sequence_id)


def require_row_count(batch: LoadBatch, count: int) -> None:
    """CorruptionError unless so many rows were sealed as were read."""
    if count != batch.row_count:
        raise CorruptionError(
            f"the staged files of sequence {batch.sequence_id} hold {count} rows, and {batch.row_count} were sealed",
            hint="Nothing was loaded. Put the files back and resume, or abandon.",
        )
