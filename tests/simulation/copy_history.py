"""The checker of copies: what is at the published names, at every moment and in the end, and what is kept aside.

It reads which versions may stand at a name from the log's sealed steps, and the contents of versions from the world.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gobblin_assets.commit.name_changes import list_changes
from gobblin_assets.commit.segment import decode_segment
from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.fixed_names.named_directory_steps import EnsureDirectory, ModeStep, PlaceDirectory
from gobblin_assets.destinations.fixed_names.named_steps import NamedStep, PlaceFile, RemoveFile, ReplaceFile
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.sequence_state import SequenceState
from tests.simulation.copy_world import KEEP_S, PLACE, SOURCE, URN, WORK_ROOT, CopyWorld
from tests.simulation.file_system import SimDisk
from tests.simulation.history import Checker
from tests.simulation.rows import SegmentRow, SequenceRow
from tests.simulation.world import ROOT, World

_SEALED: Final = (SequenceState.PREPARED, SequenceState.BLOCKED, SequenceState.ABANDONING)

Version = FileIdentity | None


@dataclass
class CopyChecker(Checker):
    """``Checker`` of a ``CopyWorld``."""

    def look_at_files(self, world: World, disk: SimDisk, when: str) -> None:
        """A name has the log's version, or the old or the new one while a sequence is open; no version is lost.

        A stranger's file, or the gap that it left, stays until a publication replaces it.
        """
        assert isinstance(world, CopyWorld)
        published = list_published(world)
        allowed: dict[str, set[Version]] = defaultdict(lambda: {None})
        allowed.update({path: {identity} for path, identity in published.items()})
        strangers = list_foreign(world)
        for path, found in strangers.items():
            # Where a later stranger removed a version, an abandonment puts an earlier stranger's file back.
            put = {identity for place, identity in world.foreign.put if place == path}
            allowed[path] = {found} if found is not None else {None, *allowed[path], *put}
        held = {identity for path in disk.files() if (identity := disk.find_identity(path)) is not None}
        excused = {identity for _path, identity in world.foreign.destroyed}
        for row in world.db.sequences.values():
            if row.state in _SEALED:
                is_given_up = row.state is SequenceState.ABANDONING
                for step in list_steps(world, row):
                    _allow(allowed, step, is_given_up=is_given_up)
                    if step.target in strangers:
                        allowed[step.target] |= {None, _old_of(step)} if is_given_up else set()
                    lost = _versions_of(step) - held - excused
                    assert not lost, f"{step} lost {lost}{when}"
            elif row.state is SequenceState.DONE and world.db.now_s < (row.done_at or 0.0) + KEEP_S:
                lost = {old for step in list_steps(world, row) if (old := _old_of(step)) is not None} - held - excused
                assert not lost, f"the slots of {row.sequence_id} lost {lost}{when}"
        lost = {identity for _path, identity in world.foreign.put - _list_replaced(world)} - held - excused
        assert not lost, f"a stranger's files are lost: {lost}{when}"
        if not any(row.state in _SEALED for row in world.db.sequences.values()):
            modes = {path: disk.find_mode(path) for path in world.closed}
            assert modes == world.closed, f"directories have other modes than they had: {modes}{when}"
        visible = _list_visible(disk)
        for path in sorted({*visible, *allowed}):
            found = visible.get(path)
            assert found in allowed[path], f"{path} has {found} instead of {allowed[path]}{when}"
            if found is not None:
                contents = world.versions.get((path.removeprefix(f"{PLACE}/"), found.mtime_ns or 0), ())
                assert disk.read(path) in contents, f"{path} has other bytes than {contents}{when}"
        for row in world.db.sequences.values():
            if row.state in _SEALED:
                steps = list(list_steps(world, row))
                if not any(path in world.foreign.last for step in steps for path in _paths_of(step)):
                    _look_at_order(steps, disk, visible, when)

    def check_files_at_rest(self, world: World) -> None:
        assert isinstance(world, CopyWorld)
        expected = _list_contents(world.disk, f"{SOURCE}/{URN}/")
        found = _list_contents(world.disk, f"{PLACE}/")
        # What a stranger put at a name that the source does not have stays.
        strange = {path for path in list_foreign(world) if path.removeprefix(f"{PLACE}/") not in expected}
        ours = {path: each for path, each in found.items() if f"{PLACE}/{path}" not in strange}
        assert ours == expected, f"the destination has {sorted(found)}, and the source {sorted(expected)}"
        visible, published = _list_visible(world.disk), list_published(world)
        for path in {*visible, *published} - strange:
            assert visible.get(path) == published.get(path), f"the log says something else of {path}"
        left = [path for path in world.disk.files() if path.startswith(WORK_ROOT) and "/.staging/" in path]
        assert not left, f"staging is left: {left}"


def list_published(world: CopyWorld) -> dict[str, FileIdentity]:
    """What the log says that stands at each name, by all that is DONE."""
    current: dict[str, FileIdentity] = {}
    for segment in list_done_segments(world):
        for path, identity in changes_of(segment.payload, segment.digest):
            if identity is None:
                current.pop(path, None)
            else:
                current[path] = identity
    return current


@lru_cache(maxsize=1_000)
def changes_of(payload: bytes, digest: bytes) -> Sequence[tuple[str, FileIdentity | None]]:
    """``list_changes`` without publishers. After each event the checkers ask for the same segments again."""
    return [(path, identity) for path, identity, _publisher in list_changes(payload, digest)]


def list_done_segments(world: World) -> list[SegmentRow]:
    """The sealed segments of all that is DONE, oldest first."""
    rows = world.db.sequences
    done = [each for each in world.db.segments.values() if rows[each.sequence_id].state is SequenceState.DONE]
    sealed = [each for each in done if each.sealed]
    return sorted(sealed, key=lambda each: each.version or rows[each.sequence_id].result_version or 0)


def list_foreign(world: CopyWorld) -> dict[str, Version]:
    """By path, what strangers put there and nobody has replaced; None: they removed it, and nothing came since."""
    published, replaced = list_published(world), _list_replaced(world)
    found: dict[str, Version] = {}
    for path, last in world.foreign.last.items():
        current = published.get(path)
        is_as_before = current is None or current == last.before or (path, current) in world.foreign.destroyed
        if is_as_before if last.identity is None else (path, last.identity) not in replaced:
            found[path] = last.identity
    return found


def _list_replaced(world: CopyWorld) -> set[tuple[str, FileIdentity]]:
    """What publications that are DONE moved into their slots, by path."""
    return {
        (step.target, old)
        for row in world.db.sequences.values()
        if row.state is SequenceState.DONE
        for step in list_steps(world, row)
        if (old := _old_of(step)) is not None
    }


def list_steps(world: CopyWorld, row: SequenceRow) -> Iterator[NamedStep]:
    for segment in world.db.segments.values():
        if segment.sequence_id == row.sequence_id and segment.sealed:
            for step in _decode(segment.payload, segment.digest):
                assert isinstance(step, NamedStep)
                yield step


@lru_cache(maxsize=1_000)
def _decode(payload: bytes, digest: bytes) -> Sequence[CommitStep]:
    return decode_segment(payload, digest)


def _allow(allowed: dict[str, set[Version]], step: NamedStep, *, is_given_up: bool) -> None:
    """Besides what is there by the log. Only a replacement by two renames leaves a name empty, and an undoing."""
    for path, identity, _rows in step.published():
        allowed[path].add(identity)
    if isinstance(step, RemoveFile) or (isinstance(step, ReplaceFile) and (is_given_up or not step.exchanges)):
        allowed[step.target].add(None)


def _look_at_order(steps: Sequence[NamedStep], disk: SimDisk, visible: Mapping[str, FileIdentity], when: str) -> None:
    """A new directory comes whole, and nothing of a phase is visible before all of the phases before it.

    The phases are those that users are promised.
    """
    begun: set[int] = set()
    undone: set[int] = set()
    for step in steps:
        if isinstance(step, ModeStep):
            continue
        there = {visible.get(path) == identity for path, identity, _rows in step.published()}
        assert len(there) <= 1 or not isinstance(step, PlaceDirectory), f"a part of {step.target} is visible{when}"
        old = _old_of(step)
        is_done = there == {True} if there else visible.get(step.target) is None
        if isinstance(step, EnsureDirectory):
            is_done = disk.is_directory(step.target)
        if is_done or (old is not None and visible.get(step.target) != old):
            begun.add(_phase_of(step))
        if not is_done:
            undone.add(_phase_of(step))
    too_early = {phase for phase in begun if any(earlier < phase for earlier in undone)}
    assert not too_early, f"the phases {too_early} have begun, and {undone} are not done{when}"


def _phase_of(step: NamedStep) -> int:
    """By what the step does and the names of its files: directories, new files, replacements, metadata, removals."""
    if isinstance(step, EnsureDirectory):
        return 0
    if isinstance(step, RemoveFile):
        return 4
    names = (path.removeprefix(f"{PLACE}/").split("/") for path, _identity, _rows in step.published())
    if all(name[-1] == "_SUCCESS" or "metadata" in name[:-1] for name in names):
        return 3
    return 2 if isinstance(step, ReplaceFile) else 1


def _paths_of(step: NamedStep) -> set[str]:
    return {step.target, *(path for path, _identity, _rows in step.published())}


def _old_of(step: NamedStep) -> Version:
    return step.old if isinstance(step, ReplaceFile | RemoveFile) else None


def _versions_of(step: NamedStep) -> set[FileIdentity]:
    """All files that the step moves."""
    new = {step.identity} if isinstance(step, PlaceFile | ReplaceFile) else set()
    old = _old_of(step)
    return new if old is None else {*new, old}


def _list_visible(disk: SimDisk) -> dict[str, FileIdentity]:
    found = {}
    for path in disk.files():
        if path.startswith(f"{ROOT}/") and not path.startswith(f"{WORK_ROOT}/"):
            identity = disk.find_identity(path)
            assert identity is not None
            found[path] = identity
    return found


def _list_contents(disk: SimDisk, prefix: str) -> dict[str, tuple[bytes, int | None]]:
    found = {}
    for path, content in disk.files().items():
        if path.startswith(prefix):
            identity = disk.find_identity(path)
            assert identity is not None
            found[path.removeprefix(prefix)] = (content, identity.mtime_ns)
    return found
