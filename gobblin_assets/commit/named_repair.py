"""Ending a publication at given names of which not everything can be taken back: a person decides what its names keep.

An abandonment takes each step back, and stops where it can't: where the attempt's directory is gone, or where a
stranger stands. Here it goes on. What can be taken back, is. At each other name, the decision holds, and nothing is
lost by it: whatever gives way, and whatever else than the step's own was in its places, is moved to a name of its own
below the job's directory of what was set aside. All this happens under a capture, as an abandonment does.

The log does not know what then stands at these names. So their paths are kept as a fact of the dataset, and the next
publication copies each of them again, whatever times say.
"""

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from gobblin_assets.commit.named_decisions import Act, Found
from gobblin_assets.commit.named_steps import RETURNED, SLOTS, NamedStep
from gobblin_assets.commit.set_aside import move_aside
from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import CapturedStaging, CommitStep, UndoOutcome
from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.fs.file_system import RenameOutcome
from gobblin_assets.fs.named_files import NamedFiles
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.model.path_names import list_upwards

UNLOGGED_FACT: Final = "unlogged_names"
"""Key in a dataset's facts: by partition, full paths at which something stands that the log does not know."""

EVERY_NAME: Final = "*"
"""In the place of more names than a fact should have."""

UNLOGGED_NAMES_MAX: Final = 10_000

_LOST: Final = "lost"


class Keep(StrEnum):
    """What a name has afterwards, as far as it is still anywhere: the version before, the planned one, or neither."""

    OLD = "old"
    NEW = "new"
    THERE = "there"


@dataclass(frozen=True, slots=True)
class UnsettledName:
    """A name whose step can't be taken back: its versions, each with where it is, for people."""

    path: str
    old: str
    new: str
    there: str


def find_unsettled(steps: Iterable[CommitStep], files: NamedFiles, attempt: str) -> list[UnsettledName]:
    """Those that stop an abandonment now. ``attempt``: its directory, under the name that it has. Changes nothing."""
    has_places = files.is_directory(attempt)
    found = []
    for step in steps:
        if not isinstance(step, NamedStep):
            continue
        act = step.decide_back(files, attempt)
        is_lost = not has_places and not step.is_left_when_undone
        is_stuck = act is not Act.DONE and (act.is_answer or is_lost)
        if is_stuck:
            found.append(_describe(step, files, attempt))
    return found


def _describe(step: NamedStep, files: NamedFiles, attempt: str) -> UnsettledName:
    places = {
        "at its name": step.target,
        "staged": step.source_in(attempt),
        "in its slot": step.slot_in(attempt),
        "taken back": step.returned_in(attempt),
    }
    entries = {name: files.find_entry(path) for name, path in places.items()}
    kept = {step.judge(entry): f"{_show(entry)} {name}" for name, entry in reversed(entries.items())}
    there = entries["at its name"]
    words = {Found.OLD: "the old version", Found.NEW: "the new version"}
    return UnsettledName(
        step.target,
        kept.get(Found.OLD, _LOST) if step.has_old else "none",
        kept.get(Found.NEW, _LOST),
        words.get(step.judge(there), _show(there)),
    )


def _show(entry: TreeEntry | None) -> str:
    if entry is None:
        return "nothing"
    if entry.kind is not EntryKind.FILE:
        return f"a {entry.kind.value}"
    mtime_ns = entry.identity.mtime_ns
    time = "" if mtime_ns is None else f" of {dt.datetime.fromtimestamp(mtime_ns // 10**9, dt.UTC):%Y-%m-%d %H:%M:%S}Z"
    return f"{entry.identity.size_bytes:,} bytes{time}"


@dataclass(slots=True)
class NamedRepair:
    """``aside``: a new directory of this owner. ``unlogged``: the names that were not taken back, once it is over.

    ``root``: what is above all names.
    """

    keep: Keep
    root: str
    aside: str
    unlogged: list[str] = field(default_factory=list)
    _prepared: set[str] = field(default_factory=set)
    _touched: set[str] = field(default_factory=set)

    def undo(self, steps: Sequence[CommitStep], world: StepWorld, captured: CapturedStaging) -> None:
        """As ``undo_steps``. ConflictError if a name changes meanwhile; RejectedError for steps at other names."""
        for step in reversed(steps):
            if not isinstance(step, NamedStep):
                raise RejectedError(
                    f"a step of the kind {step.kind!r} publishes at no given name",
                    field="sequence",
                    hint=f"`gobblin-assets commit abandon {captured.sequence_id}` takes it back.",
                )
            files, attempt = world.named_files, captured.place_of(step.staging)
            self._make_places(files, attempt)
            if step.undo(world, captured) is UndoOutcome.STRANGER:
                captured.require_held()
                self._settle(step, files, attempt)
        if self._touched:
            world.fs.sync_directories(list_upwards(self._touched, self.root))

    @property
    def names(self) -> list[str]:
        """For the fact of the dataset."""
        return self.unlogged if len(self.unlogged) <= UNLOGGED_NAMES_MAX else [EVERY_NAME]

    def _make_places(self, files: NamedFiles, attempt: str) -> None:
        """Of an attempt that lost a part of its directories. Only this owner knows its name."""
        if attempt not in self._prepared and files.is_directory(attempt):
            for name in (SLOTS, RETURNED):
                files.make_directory(f"{attempt}/{name}")
        self._prepared.add(attempt)

    def _settle(self, step: NamedStep, files: NamedFiles, attempt: str) -> None:
        places = {
            "staged": step.source_in(attempt),
            "slot": step.slot_in(attempt),
            "returned": step.returned_in(attempt),
        }
        found = {name: files.find_entry(path) for name, path in places.items()}
        judged = {name: step.judge(entry) for name, entry in found.items()}
        at_name = step.judge(files.find_entry(step.target))
        wanted = None if self.keep is Keep.THERE else {Keep.OLD: Found.OLD, Keep.NEW: Found.NEW}[self.keep]
        origin = next((name for name, each in judged.items() if each is wanted), None)
        if step.is_left_when_undone:
            pass
        elif self.keep is Keep.OLD and not step.has_old:
            self._put_aside(files, step.target, "name", step)
        elif at_name is not wanted and origin is not None:
            self._put_aside(files, step.target, "name", step)
            if step.move(files, places[origin], step.target) is not RenameOutcome.RENAMED:
                raise ConflictError(
                    f"{step.target} changed while it was repaired",
                    hint="Stop what else writes there, then do this again.",
                    path=step.target,
                )
            self._touched |= {_parent(step.target), _parent(places[origin])}
            del judged[origin]
        for name, each in judged.items():
            entry = found[name]
            # Of a new directory that is not at its name, somebody may have changed what is in it.
            is_changed = name in ("staged", "returned") and entry is not None and entry.kind is EntryKind.DIRECTORY
            if each in (Found.OLD, Found.OTHER) or is_changed:
                self._put_aside(files, places[name], name, step)
        self.unlogged += {step.target, *(path for path, _identity, _rows in step.published())}

    def _put_aside(self, files: NamedFiles, path: str, place: str, step: NamedStep) -> None:
        target = f"{self.aside}/{place}{step.target.removeprefix(self.root)}"
        if move_aside(files, path, target):
            self._touched |= {_parent(path), _parent(target)}


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
