"""The port of jobs whose datasets are sets of files: which sets there are, and whether one has changed.

Looks are cheap and bounded, since sensors repeat them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.job_options import DatasetOptions


class SetId(NamedTuple):
    """A file set of a dataset. ``key``: its partition's; empty for a dataset that is one set."""

    urn: DatasetUrn
    key: str


@dataclass(frozen=True, slots=True)
class WatchRules:
    """``interval_s``: how often sets are looked at. ``running``: whether the sensor runs without being turned on.

    ``finds_datasets``: whether datasets and sets may come and go; else they are written in the job.
    """

    interval_s: int
    running: bool
    finds_datasets: bool


class FileSets(Protocol):
    """The sets that one look has found."""

    @property
    def datasets(self) -> Mapping[DatasetUrn, DatasetOptions]:
        """The datasets as assets."""
        ...

    def list_sets(self) -> Sequence[SetId]:
        """The sets, newest keys first."""
        ...

    def find_mark(self, each: SetId) -> str | None:
        """A short text that changes when the set does; None for a set that is not ready.

        RejectedError for a set that is too large for a look, RetryableError if it can't be looked at now.
        """
        ...
