"""Removals of files that the source lacks: which of them one run removes, and how many are too many."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.jobs.copy.budgets import PERCENT, read_share
from gobblin_assets.jobs.copy.difference import Difference
from gobblin_assets.model.wording import count_of

_SHOWN_MAX: Final = 5


class Loss(StrEnum):
    """The reason why removals of a place are stopped, as the rest of a sentence about it."""

    MOUNT = "is not on the file system that was published"
    ENTRIES = "lost all its entries at once"


@dataclass(frozen=True, slots=True)
class StoppedRemovals:
    """Removals that wait for a person. ``places``: below the file set, "" for all of it; each with the reason.
    ``files``: how many, by place.
    """

    places: Mapping[str, Loss] = field(default_factory=dict)
    files: Counter[str] = field(default_factory=Counter)

    def describe(self, root: str) -> Iterator[str]:
        """A sentence for people, if any are stopped. ``root``: the source's directory."""
        if not self.places:
            return
        shown = "; ".join(
            f"{'/'.join(filter(None, (root, place)))} {self.places[place]} "
            f"({count_of(self.files[place], 'file', 'files')})"
            for place in sorted(self.places)[:_SHOWN_MAX]
        )
        more = f"; and {len(self.places) - _SHOWN_MAX:,} more places" if len(self.places) > _SHOWN_MAX else ""
        yield (
            f"no file that the source lacks is removed where it lost all at once: {shown}{more}. Look at the source; "
            "if these files are rightly gone, remove them by `gobblin-assets run <job file> --confirm-deletes`"
        )


SplitRemovals = Callable[[Sequence[Difference]], tuple[Sequence[Difference], StoppedRemovals]]
"""Those to remove, and those that are stopped."""


@dataclass(slots=True)
class DestinationFiles:
    """The destination's entries, and how many files were among them so far."""

    entries: Iterable[TreeEntry]
    count: int = 0

    def __iter__(self) -> Iterator[TreeEntry]:
        for entry in self.entries:
            self.count += entry.kind is EntryKind.FILE
            yield entry


def _stop_none(extras: Sequence[Difference]) -> tuple[Sequence[Difference], StoppedRemovals]:
    return extras, StoppedRemovals()


@dataclass(frozen=True, slots=True)
class RemovalRules:
    """The rules by which removals are chosen. ``delete_max``: a number, or a share of the ``existing`` files such as
    "20%"; None: any. ``split``: first.
    """

    delete_max: int | str | None = None
    existing: DestinationFiles = field(default_factory=lambda: DestinationFiles(()))
    split: SplitRemovals = _stop_none

    def choose(
        self, extras: Sequence[Difference], cleared: Sequence[Difference] = ()
    ) -> tuple[Sequence[Difference], StoppedRemovals]:
        """To be called once both sides were listed. ``cleared``: files that give way to what the source has instead.

        RejectedError: more would be removed than ``delete_max``, or what is stopped would have to give way.
        """
        _cleared, lost = self.split(cleared)
        for place, loss in lost.places.items():
            path = cleared[0].path
            raise RejectedError(
                f"{path!a} is to give way, and at the source {place or 'the whole file set'} {loss}",
                field="deletes",
                hint="Look at the source. If that is right: `gobblin-assets run <job file> --confirm-deletes`.",
                path=path,
            )
        chosen, stopped = self.split(extras)
        most = self.delete_max
        is_share = isinstance(most, str)
        if most is None:
            return chosen, stopped
        allowed = read_share(most) / PERCENT * self.existing.count if isinstance(most, str) else most
        removed = [*chosen, *cleared]
        if len(removed) > allowed:
            path = removed[-1].path
            of_all = f" of the {self.existing.count:,} files at the destination" if is_share else " files"
            raise RejectedError(
                f"more than {most if is_share else f'{most:,}'}{of_all} would be deleted: {len(removed):,}, "
                f"{path!a} among them",
                field="delete_max",
                hint="Look at the source: if it lacks these files rightly, raise delete_max.",
                path=path,
            )
        return chosen, stopped
