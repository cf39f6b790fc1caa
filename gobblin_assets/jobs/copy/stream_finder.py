"""Datasets of a stream: directories named after dates, each of which is a file set with the key of its partition."""

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import Tree
from gobblin_assets.jobs.copy.datasets import WHOLE_TREE, CopyableDataset, FileSet
from gobblin_assets.jobs.copy.date_patterns import DatePattern, parse_date_pattern
from gobblin_assets.jobs.copy.finders import read_finder_options
from gobblin_assets.jobs.copy.name_patterns import LiteralStart, NamePattern, list_directories, parse_name_pattern
from gobblin_assets.model.partition import PartitionWindow
from gobblin_assets.spec.spec_model import SpecModel

_FIELD: Final = "finder.pattern"

LOOKBACK_S_MAX: Final = 1_000 * 365 * 86_400
"""A thousand years: no calendar has a date that is much further back."""


class StreamFinderOptions(SpecModel):
    """``pattern``: globs of directories' names, then directories with dates: ``topics/*/hourly/%Y/%m/%d/%H``.

    The dates begin with the first name that has ``%Y``; ``date_patterns`` describes them. ``zone`` is that of their
    wall clock. ``lookback_s``: windows that ended longer ago are left out; without it, none is. It is at most
    ``LOOKBACK_S_MAX``.
    """

    pattern: str
    zone: str = "UTC"
    lookback_s: float | None = Field(None, gt=0, le=LOOKBACK_S_MAX, allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class StreamDatasetFinder:
    """A dataset for each match of ``datasets`` that has directories of ``dates``, and a file set for each of these.

    Directories that stand for no date are left out, and windows that begin after now.
    """

    datasets: NamePattern
    dates: DatePattern
    lookback_s: float | None = None

    def find_datasets(self, tree: Tree, root: str, now: dt.datetime) -> Sequence[CopyableDataset]:
        depth = len(self.datasets.globs)
        found: dict[str, list[FileSet]] = defaultdict(list)
        start = LiteralStart(root, self.datasets)

        def descend(path: str) -> bool:
            names = path.split("/")
            if len(names) <= depth:
                return self.datasets.matches_start(names)
            dates = names[depth:]
            return len(dates) < len(self.dates.names) and self._is_asked_for(self.dates.find_window(dates), now)

        for entry in list_directories(tree, root, descend):
            start.meet(entry)
            names = entry.path.split("/")
            if len(names) != depth + len(self.dates.names):
                continue
            dates = names[depth:]
            window, key = self.dates.find_window(dates), self.dates.find_key(dates)
            if key is not None and self._is_asked_for(window, now):
                found["/".join(names[:depth])].append(FileSet(key, "/".join(dates), window))
        start.require()
        return [
            CopyableDataset(
                path or WHOLE_TREE,
                path,
                self.datasets.below_literal(path),
                tuple(sorted(file_sets, key=lambda each: each.key)),
            )
            for path, file_sets in sorted(found.items())
        ]

    def _is_asked_for(self, window: PartitionWindow | None, now: dt.datetime) -> bool:
        oldest = None if self.lookback_s is None else now - dt.timedelta(seconds=self.lookback_s)
        return window is not None and window.start <= now and (oldest is None or window.end > oldest)


def open_stream_finder(options: Mapping[str, object]) -> StreamDatasetFinder:
    """The finder of the kind ``stream``. RejectedError names the option."""
    read = read_finder_options(StreamFinderOptions, options)
    try:
        zone = ZoneInfo(read.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise RejectedError(
            f"expected a zone such as Europe/Berlin, found {read.zone!a}", field="finder.zone", hint="Correct it."
        ) from error
    names = read.pattern.split("/")
    first = next((number for number, name in enumerate(names) if "%Y" in name), len(names))
    datasets = parse_name_pattern("/".join(names[:first]), field=_FIELD)
    return StreamDatasetFinder(
        datasets, parse_date_pattern("/".join(names[first:]), zone, field=_FIELD, whole=read.pattern), read.lookback_s
    )
