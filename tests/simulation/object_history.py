"""The checker of copies to an object store: what is at the published names, at every moment and in the end.

It reads which versions may stand at a name from the log's sealed steps, and compares bytes.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gobblin_assets.commit.segment import decode_segment
from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.fixed_names.object_steps import ObjectStep, PlaceObject, RemoveObject
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import SequenceId
from tests.simulation.copy_history import changes_of, list_done_segments
from tests.simulation.copy_world import KEEP_S, SOURCE, URN
from tests.simulation.file_system import SimDisk
from tests.simulation.history import Checker
from tests.simulation.object_world import BUCKET_PLACE, BUCKET_WORK, ObjectWorld, Strangers, etag_of_one_part
from tests.simulation.rows import SequenceRow
from tests.simulation.world import World

_SEALED: Final = (SequenceState.PREPARED, SequenceState.BLOCKED, SequenceState.ABANDONING)
_MARK: Final = "a mark"

Version = str | None
"""The ETag of what is at a name; or a mark, or nothing."""


@dataclass
class ObjectChecker(Checker):
    """``Checker`` of an ``ObjectWorld``. A power cut takes nothing from a store.

    ``excused``: old versions that a stranger destroyed before a sequence could put them aside, by its id and the path.
    ``rebuilt``: acts of strangers, by path and number, after which the log's version came to stand there again.
    ``late_max``: processes that were paused, and so the copies that may be left.
    """

    excused: frozenset[tuple[SequenceId, str]] = frozenset()
    rebuilt: frozenset[tuple[str, int]] = frozenset()
    late_max: int = 1

    def look_at_files(self, world: World, disk: SimDisk, when: str) -> None:
        """A name has the log's version, or the old or the new one while a sequence is open; no version is lost."""
        assert isinstance(world, ObjectWorld)
        if disk is not world.disk:
            return
        allowed: dict[str, set[Version]] = defaultdict(lambda: {None})
        allowed.update({path: {etag} for path, etag in list_published(world).items()})
        visible = list_visible(world)
        strangers = self._list_strangers(world, visible)
        for path, found in strangers.items():
            allowed[path].add(found)
        for row in world.db.sequences.values():
            is_kept = row.state is SequenceState.DONE and world.db.now_s < (row.done_at or 0.0) + KEEP_S
            for step in list_steps(world, row) if is_kept or row.state in _SEALED else ():
                if row.state in _SEALED:
                    _allow(allowed, step, is_given_up=row.state is SequenceState.ABANDONING)
                old = None if step.replaced is None else step.replaced.tag
                kept = {_copy_of(world, step), visible.get(step.target) if row.state in _SEALED else None}
                if old is not None and old not in kept and (step.target, old) in world.strangers.destroyed:
                    self.excused |= {(row.sequence_id, step.target)}
                is_excused = (row.sequence_id, step.target) in self.excused
                assert old is None or old in kept or is_excused, f"{step} lost {old}{when}"
        self._look_for_strangers(world, strangers, visible)
        for path in sorted({*visible, *allowed}):
            assert visible.get(path) in allowed[path], f"{path} has {visible.get(path)} instead of {allowed[path]}"
        for row in world.db.sequences.values():
            if row.state in _SEALED:
                steps = list(list_steps(world, row))
                if not any(step.target in world.strangers.last for step in steps):
                    _look_at_order(steps, visible)

    def _list_strangers(self, world: ObjectWorld, visible: Mapping[str, Version]) -> dict[str, Version]:
        """By path, what strangers put there and nobody has replaced; None: they removed it, and nothing came since."""
        last, destroyed = world.strangers.last, world.strangers.destroyed
        published = list_published(world)
        if not any(row.state in _SEALED for row in world.db.sequences.values()):
            there = {path for path, etag in visible.items() if etag == published.get(path)}
            self.rebuilt |= {(path, number) for path, (number, _found) in last.items() if path in there}
        # From now on these versions stand there again.
        destroyed = frozenset((path, etag) for path, etag in destroyed if visible.get(path) != etag)
        world.strangers = Strangers(last, destroyed)
        replaced = {
            (step.target, step.replaced.tag)
            for row in world.db.sequences.values()
            if row.state is SequenceState.DONE
            for step in list_steps(world, row)
            if step.replaced is not None
        }
        return {
            path: found
            for path, (number, found) in last.items()
            if (path, number) not in self.rebuilt and (path, found) not in replaced
        }

    def _look_for_strangers(
        self, world: ObjectWorld, strangers: Mapping[str, Version], visible: Mapping[str, Version]
    ) -> None:
        """What a stranger put at a name is there, or an open sequence has it aside."""
        sealed = {
            (step.target, step.replaced.tag)
            for row in world.db.sequences.values()
            if row.state in _SEALED
            for step in list_steps(world, row)
            if step.replaced is not None
        }
        for path, found in strangers.items():
            is_there = found is None or visible.get(path) == found or (path, found) in sealed
            assert is_there, f"a stranger's {found} at {path} is lost"

    def check_files_at_rest(self, world: World) -> None:
        assert isinstance(world, ObjectWorld)
        prefix = f"{SOURCE}/{URN}/"
        source = world.disk.files().items()
        expected = {path.removeprefix(prefix): content for path, content in source if path.startswith(prefix)}
        objects = world.store.objects.items()
        found = {
            path.removeprefix(f"{BUCKET_PLACE}/"): each.content
            for path, each in objects
            if path.startswith(f"{BUCKET_PLACE}/")
        }
        visible, published = list_visible(world), list_published(world)
        # What a stranger put at a name that the source does not have stays.
        strange = {
            path: each
            for path, each in self._list_strangers(world, visible).items()
            if path.removeprefix(f"{BUCKET_PLACE}/") not in expected
        }
        kept = {path.removeprefix(f"{BUCKET_PLACE}/") for path, each in strange.items() if each is not None}
        ours = {path: content for path, content in found.items() if path not in kept}
        assert kept <= set(found), f"strangers' objects are lost: {sorted(kept - set(found))}"
        assert ours == expected, f"the destination has {sorted(found)}, and the source {sorted(expected)}"
        for path in {*visible, *published} - set(strange):
            assert visible.get(path) == published.get(path), f"the log says something else of {path}"
        # An upload whose answer was lost was never written down; it has no bytes.
        filled = [each for each in world.store.uploads.values() if each.parts]
        assert not filled, f"uploads are left: {filled}"
        left = [path for path, _each in objects if path.startswith(BUCKET_WORK) and "/.staging/" in path]
        # A process that wakes up before it puts a version aside does so, if the same bytes stand there again by then,
        # although its attempt is over: one copy that nobody looks for any more.
        late = [path for path in left if "/slots/" in path]
        assert left == late, f"staging is left: {left}"
        assert len(late) <= self.late_max, f"copies are left: {late}"


def list_published(world: ObjectWorld) -> dict[str, str]:
    """The ETag of what is at each name by the log, by all that is DONE."""
    current: dict[str, str] = {}
    for segment in list_done_segments(world):
        for path, identity in changes_of(segment.payload, segment.digest):
            if identity is None:
                current.pop(path, None)
            else:
                current[path] = identity.tag or ""
    return current


def list_steps(world: ObjectWorld, row: SequenceRow) -> Iterator[ObjectStep]:
    for segment in world.db.segments.values():
        if segment.sequence_id == row.sequence_id and segment.sealed:
            for step in _decode(segment.payload, segment.digest):
                assert isinstance(step, ObjectStep)
                yield step


@lru_cache(maxsize=1_000)
def _decode(payload: bytes, digest: bytes) -> Sequence[CommitStep]:
    return decode_segment(payload, digest)


def list_visible(world: ObjectWorld) -> dict[str, Version]:
    return {
        path: _MARK if each.content.startswith(b"gobblin-assets: ") else each.etag
        for path, each in world.store.objects.items()
        if path.startswith(f"{BUCKET_PLACE}/")
    }


def _copy_of(world: ObjectWorld, step: ObjectStep) -> Version:
    """The ETag that the copy would have at its name: a copy has that of one whole."""
    found = world.store.objects.get(step.slot)
    if found is None:
        return None
    return etag_of_one_part(found.content)


def _allow(allowed: dict[str, set[Version]], step: ObjectStep, *, is_given_up: bool) -> None:
    """Besides what is there by the log: a replacement never leaves a name empty."""
    for path, identity, _rows in step.published():
        allowed[path].add(identity.tag)
    if isinstance(step, RemoveObject):
        allowed[step.target] |= {None, _MARK}
    elif isinstance(step, PlaceObject) and is_given_up:
        allowed[step.target].add(_MARK)


def _look_at_order(steps: Sequence[ObjectStep], visible: Mapping[str, Version]) -> None:
    """Nothing of a phase is visible before all of the phases before it."""
    begun: set[int] = set()
    undone: set[int] = set()
    for step in steps:
        found = visible.get(step.target)
        is_done = all(found == identity.tag for _path, identity, _rows in step.published())
        if isinstance(step, RemoveObject):
            is_done = found is None
        if is_done or (step.replaced is not None and found != step.replaced.tag):
            begun.add(step.phase)
        if not is_done:
            undone.add(step.phase)
    too_early = {phase for phase in begun if any(earlier < phase for earlier in undone)}
    assert not too_early, f"the phases {too_early} have begun, and {undone} are not done"
