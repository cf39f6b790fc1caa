"""The inodes of a disk: the state that programs see, the state after a power cut, and the changes in between."""

from collections.abc import Callable, Sequence
from typing import Final

from gobblin_assets.model.files import FileIdentity
from tests.simulation.pending_changes import ChangeKind, Entry, PendingChange, SimFile, Unsynced, file_after_cut

ROOT: Final = 1

Tree = dict[int, dict[str, int]]
"""Entries by directory. The inner dicts are replaced and never changed, so that copies may share them."""


class Inodes:
    """Names and contents, by number. The rules are in the docstring of ``tests.simulation.disk``."""

    def __init__(self) -> None:
        self.seen: Tree = {ROOT: {}}
        self.durable: Tree = {ROOT: {}}
        self.files: dict[int, SimFile] = {}
        self.pending: list[PendingChange] = []
        # Of the directories that were given one.
        self.modes: dict[int, int] = {}
        self.durable_modes: dict[int, int] = {}
        self._durable_parents: dict[int, int] = {}
        self._synced_sides: dict[int, frozenset[int]] = {}
        self._counter = ROOT

    def copy(self) -> "Inodes":
        other = Inodes()
        other.seen = self.seen.copy()
        other.durable = self.durable.copy()
        other.files = self.files.copy()
        other.pending = self.pending.copy()
        other.modes, other.durable_modes = self.modes.copy(), self.durable_modes.copy()
        other._durable_parents = self._durable_parents.copy()
        other._synced_sides = self._synced_sides.copy()
        other._counter = self._counter
        return other

    def describe(self) -> list[object]:
        """All state that decides the future, in an order that does not depend on its history."""
        inodes = {ROOT, *(change.inode for change in self.pending)}
        waiting = list(inodes)
        while waiting:
            inode = waiting.pop()
            for entries in (self.seen.get(inode), self.durable.get(inode)):
                new = set(entries.values() if entries else ()) - inodes
                inodes |= new
                waiting += new
        found: list[object] = []
        for inode in sorted(inodes):
            if inode in self.files:
                data, synced, identity = self.files[inode]
                found.append((inode, data, synced, identity.mtime_ns))
            else:
                modes = (self.modes.get(inode), self.durable_modes.get(inode))
                found.append((inode, sorted(self.seen[inode].items()), sorted(self.durable[inode].items()), modes))
        places = {change.number: place for place, change in enumerate(self.pending)}
        for change in self.pending:
            after = sorted(places[number] for number in change.after if number in places)
            sides = sorted(self._synced_sides.get(change.number, ()))
            found.append((change.kind.value, change.inode, change.gone, change.come, after, sides, change.other))
        return found

    def power_cut(self, keep: Callable[[PendingChange], bool], unsynced: Unsynced) -> None:
        lost: set[int] = set()
        for change in self.pending:
            kept = keep(change)
            if kept and not change.after & lost and self._has_place_for(change):
                self._write_down(change)
            else:
                lost.add(change.number)
        self.pending.clear()
        self._synced_sides.clear()
        reachable = [ROOT]
        for inode in reachable:
            reachable += [child for child in self.durable[inode].values() if child in self.durable]
        self.seen = {inode: self.durable[inode] for inode in reachable}
        self.durable = self.seen.copy()
        self.durable_modes = {inode: mode for inode, mode in self.durable_modes.items() if inode in self.seen}
        self.modes = self.durable_modes.copy()
        left = {child for entries in self.seen.values() for child in entries.values()}
        self.files = {inode: file_after_cut(file, unsynced) for inode, file in self.files.items() if inode in left}
        self._durable_parents = {inode: parent for inode, parent in self._durable_parents.items() if inode in self.seen}

    # --- changes, volatile

    def new_directory(self, come: Entry, path: str) -> int:
        inode = self._count()
        self.seen[inode] = self.durable[inode] = {}
        self.change(ChangeKind.CREATE, inode, path, come=come)
        return inode

    def new_file(self, come: Entry, path: str) -> int:
        inode = self._count()
        self.change(ChangeKind.CREATE, inode, path, come=come)
        return inode

    def write(self, inode: int, path: str, content: bytes, mtime_ns: int | None) -> None:
        old, now_ns = self.files.get(inode), self._count()
        identity = FileIdentity(len(content), inode, now_ns if mtime_ns is None else mtime_ns)
        self.files[inode] = SimFile(content, old.synced if old else None, identity)
        self.pending = [c for c in self.pending if c.inode != inode or c.kind is not ChangeKind.WRITE]
        self.pending.append(PendingChange(self._count(), ChangeKind.WRITE, inode, path))

    def change_mode(self, inode: int, path: str, mode: int) -> None:
        self.modes[inode] = mode
        self.pending = [c for c in self.pending if c.inode != inode or c.kind is not ChangeKind.MODE]
        self.pending.append(PendingChange(self._count(), ChangeKind.MODE, inode, path))

    def change(
        self,
        kind: ChangeKind,
        inode: int,
        path: str,
        *,
        gone: Entry | None = None,
        come: Entry | None = None,
        old_path: str = "",
        other: int | None = None,
    ) -> None:
        emptied = inode if kind is ChangeKind.REMOVE else None
        after = frozenset(
            earlier.number
            for earlier in self.pending
            if earlier.is_about(gone) or earlier.is_about(come) or (emptied is not None and earlier.touches(emptied))
        )
        change = PendingChange(self._count(), kind, inode, path, gone, come, after, old_path, other)
        self.pending.append(change)
        _carry_out(change, self.seen)

    # --- syncs

    def sync_content(self, inode: int) -> None:
        self._commit([c.number for c in self.pending if c.inode == inode and c.kind is ChangeKind.WRITE])

    def sync_names(self, directory: int, name: str | None = None) -> None:
        """Make one name of the directory durable, or all of them and its mode."""
        is_mode = [c.kind is ChangeKind.MODE and c.inode == directory and name is None for c in self.pending]
        due = [change.number for change, is_due in zip(self.pending, is_mode, strict=True) if is_due]
        for change in self.pending:
            gone, come = change.gone, change.come
            if not change.touches(directory) or not (name is None or change.is_about((directory, name))):
                continue
            if gone is None or come is None or gone[0] == come[0]:
                due.append(change.number)
            elif name is None:
                sides = self._synced_sides.get(change.number, frozenset())
                self._synced_sides[change.number] = sides | {directory}
            else:
                self._synced_sides[change.number] = frozenset((gone[0], come[0]))
        self._commit(due)
        # Written changes may have made the target of a rename durable; each round takes one rename off the list.
        while self._synced_sides and (ready := [c.number for c in self.pending if self._is_ready(c)]):
            self._commit(ready[:1])

    def _is_ready(self, change: PendingChange) -> bool:
        return len(self._synced_sides.get(change.number, ())) == 2 and self._has_place_for(change)

    def _has_place_for(self, change: PendingChange) -> bool:
        """Whether a rename's target is reachable by durable names, and not through the directory that it moves."""
        if change.gone is None or change.come is None or change.gone[0] == change.come[0]:
            return True
        places = [change.come[0]] if change.other is None else [change.come[0], change.gone[0]]
        return all(self._is_reachable(place, without=change.inode) for place in places)

    def _is_reachable(self, directory: int, *, without: int) -> bool:
        inode: int | None = directory
        while inode is not None and inode != ROOT:
            if inode == without:
                return False
            inode = self._durable_parents.get(inode)
        return inode == ROOT

    def _commit(self, numbers: Sequence[int]) -> None:
        """Write these changes to the platter, in order, with all changes that they depend on."""
        if not numbers:
            return
        pending = {change.number: change for change in self.pending}
        wanted: set[int] = set()
        waiting = list(numbers)
        while waiting:
            number = waiting.pop()
            if number in wanted or number not in pending:
                continue
            wanted.add(number)
            waiting += pending[number].after
            if pending[number].moves and not self._has_place_for(pending[number]):
                waiting += [earlier for earlier in pending if earlier < number]
        for number in sorted(wanted):
            self._write_down(pending[number])
            self._synced_sides.pop(number, None)
        self.pending = [change for change in self.pending if change.number not in wanted]
        self._forget_contents({pending[n].inode for n in wanted if pending[n].kind is ChangeKind.REMOVE})

    def _write_down(self, change: PendingChange) -> None:
        if change.kind is ChangeKind.WRITE:
            self.files[change.inode] = self.files[change.inode]._replace(synced=self.files[change.inode].data)
            return
        if change.kind is ChangeKind.MODE:
            self.durable_modes[change.inode] = self.modes[change.inode]
            return
        _carry_out(change, self.durable)
        if change.inode in self.seen or change.inode in self.durable:
            if change.come is None:
                self._durable_parents.pop(change.inode, None)
            else:
                self._durable_parents[change.inode] = change.come[0]

    def _forget_contents(self, removed: set[int]) -> None:
        """The content of a file that is durably removed is no pending change any more."""
        writes = {c.inode for c in self.pending if c.kind is ChangeKind.WRITE and c.inode in removed}
        for tree in (self.seen, self.durable) if writes else ():
            for entries in tree.values():
                writes.difference_update(entries.values())
        if writes:
            self.pending = [c for c in self.pending if c.kind is not ChangeKind.WRITE or c.inode not in writes]

    def _count(self) -> int:
        self._counter += 1
        return self._counter


def _carry_out(change: PendingChange, tree: Tree) -> None:
    if change.gone is not None:
        directory, name = change.gone
        tree[directory] = {other: inode for other, inode in tree[directory].items() if other != name}
    if change.come is not None:
        directory, name = change.come
        tree[directory] = {**tree[directory], name: change.inode}
    if change.other is not None and change.gone is not None:
        directory, name = change.gone
        tree[directory] = {**tree[directory], name: change.other}
