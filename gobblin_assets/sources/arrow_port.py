"""The port of readers that need no Spark: they give this process the rows of a WorkUnit as Arrow batches."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from gobblin_assets.errors import GobblinError
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.spec.job_spec import DatasetSpec


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """Rows of WorkUnits on their way to this process.

    ``batches`` have the columns of the reader, in its order and of its types; each batch is small.

    ``interrupt`` ends the reading from another thread: the batches then end in an error. ``interrupt`` may be called at
    any time before the reading is closed, and raises nothing.
    """

    batches: Iterator[pa.RecordBatch]
    interrupt: Callable[[], None]


def find_asked_of_spark(spec: DatasetSpec, *, rereads: bool) -> str | None:
    """The first field of a dataset that only Spark does; None: none. ``rereads``: its late window is read again."""
    asked = {
        "converters": spec.converters,
        "quality.rows": spec.quality.rows,
        "writer.partition_by": spec.writer.partition_by,
        "writer.time_column": spec.writer.time_column,
        "writer.event_time": spec.writer.event_time,
        "watermark.late_window": rereads,
    }
    return next((name for name, is_asked in asked.items() if is_asked), None)


class ArrowReader(Protocol):
    """A reader of what one plan planned. Called from several threads at once."""

    @property
    def columns(self) -> Sequence[tuple[str, str]]:
        """Name and type of each column of the dataset, as Spark writes types."""
        ...

    def open(self, unit: WorkUnit) -> AbstractContextManager[ArrowRows]:
        """Exactly the rows of ``unit``, which belongs to the plan. Opening and reading may raise anything."""
        ...

    def explain(self, error: Exception) -> GobblinError:
        """The family for an error of opening or reading that has none. It names table and column if it can. Pure."""
        ...
