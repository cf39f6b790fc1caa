"""The sources of copies under torture: trees of files that prove themselves, and that change all the time."""

import os
import random
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.torture.feeder import Feeder
from tests.torture.proving_files import FileVersion, make_content

_FEED_EVERY_S: Final = 0.3
_CHANGES: Final = (1, 1, 2, 3, 8)
_FILES_MAX: Final = 40
_KEPT: Final = "kept.bin"
# Few names, so that names are used again: a removed file comes back, and so does a directory.
_NAMES: Final = (*(f"{number}.bin" for number in range(12)), "ä b.bin", "_SUCCESS", "metadata/parts.json")
_DIRECTORIES: Final = ("day", "night", "x.y", "Ü z")
_DIRECTORY_MODES: Final = (0o755, 0o750, 0o711, 0o700)
_FILE_MODES: Final = (0o644, 0o600, 0o640, 0o755)
_LENGTHS: Final = ((0, 100), (100, 6_000), (6_000, 60_000), (150_000, 400_000))
_LENGTH_WEIGHTS: Final = (30, 50, 17, 3)
# Long files are copied for long; a few are enough for a stranger.
_REWRITTEN_MAX: Final = 6
_REWRITE_EVERY_S: Final = 0.02


class SourceTree:
    """One dataset. Whatever is new stands at its name at once, as a rename brings it there; a stranger alone writes to
    files that have a name.

    ``root``: the dataset's directory; ``place``: its path at the destination, by which its files call themselves.
    ``sets``: the directories of its file sets, of which the first is made now, and each keeps one file for ever.
    ``aside``: a directory of this tree alone on the same file system, where files are written.
    """

    def __init__(self, root: Path, place: str, aside: Path, sets: Sequence[str], dice: random.Random) -> None:
        self.place = place
        self.history: dict[str, list[FileVersion]] = defaultdict(list)
        self._root = root
        self._aside = aside
        self._unmade = list(sets)
        self._made: list[str] = []
        self._dice = dice
        self._files: dict[str, int] = {}
        self._last_mtime_ns = 0
        self._lock = threading.Lock()
        root.mkdir(parents=True)
        self.add_set()

    def add_set(self) -> None:
        """The next file set, with some files."""
        directory = self._unmade.pop(0)
        if directory:
            (self._root / directory).parent.mkdir(parents=True, exist_ok=True)
            self._make_directory(directory, [_join(directory, _KEPT)])
        self._made.append(directory)
        for name in (_KEPT, *self._dice.sample(_NAMES, 3)):
            self.write(_join(directory, name), self._draw_length())

    def change(self) -> None:
        """One change of a kind that is drawn by lot. Any thread may change the tree."""
        with self._lock:
            self._change()

    def rewrite(self, lasts_s: float) -> int:
        """Rewrite the longest files in place again and again, each in one call, and put their times back; how often.

        They get versions with times of their own before, which runs copy meanwhile; and behind it, since whoever looks
        between two rewrites sees a whole version that no time tells from the last one.
        """
        until = time.monotonic() + lasts_s
        with self._lock:
            paths = sorted(self._files, key=lambda path: -self._files[path])[:_REWRITTEN_MAX]
            self._renew(paths)
        count = 0
        while not count or time.monotonic() < until:
            path = paths[count % len(paths)]
            with self._lock:
                if path in self._files:
                    self._rewrite(path)
            count += 1
            time.sleep(_REWRITE_EVERY_S)
        with self._lock:
            self._renew(paths)
        return count

    def _renew(self, paths: Sequence[str]) -> None:
        """By another version of the same length and mode, of those that are still there."""
        for path in paths:
            if path in self._files:
                self.write(path, self._files[path], mode=self.history[_join(self.place, path)][-1].mode)

    def _rewrite(self, path: str) -> None:
        name, target = _join(self.place, path), self._root / path
        history = self.history[name]
        content = make_content(name, len(history) + 1, self._files[path])
        # Before anybody can see it.
        history.append(history[-1])
        with target.open("r+b", buffering=0) as file:
            file.write(content)
            os.utime(file.fileno(), ns=(history[-1].mtime_ns, history[-1].mtime_ns))

    def _change(self) -> None:
        dice = self._dice
        removable = [path for path in self._files if not path.endswith(_KEPT)]
        kinds = (self._add_file, self._replace, self._replace_by_length, self._remove, self._add_directory)
        (kind,) = dice.choices(kinds, (30, 25, 20, 15, 10))
        if self._unmade and dice.random() < 0.02:
            self.add_set()
        elif len(self._files) >= _FILES_MAX:
            self._remove_directory(_above(dice.choice(removable)))
        elif kind != self._remove or removable:
            kind()

    def _add_file(self) -> None:
        nested = set(map(_above, self._files))
        directory = self._dice.choice(sorted({*self._made, *nested}))
        self.write(_join(directory, self._dice.choice(_NAMES)), self._draw_length())

    def _replace(self) -> None:
        self.write(self._dice.choice(list(self._files)), self._draw_length())

    def _replace_by_length(self) -> None:
        """By another version of the same length."""
        path, length = self._dice.choice(list(self._files.items()))
        self.write(path, length)

    def _remove(self) -> None:
        """A directory goes with its last file: one that stands empty stops removals until a person confirms them."""
        path = self._dice.choice([path for path in self._files if not path.endswith(_KEPT)])
        if [each for each in self._files if _above(each) == _above(path)] == [path]:
            self._remove_directory(_above(path))
            return
        (self._root / path).unlink()
        del self._files[path]

    def _add_directory(self) -> None:
        """A new directory comes with its files, and sometimes with a directory in it."""
        path = _join(self._dice.choice(self._made), self._dice.choice(_DIRECTORIES))
        if (self._root / path).exists():
            self.write(_join(path, self._dice.choice(_NAMES)), self._draw_length())
            return
        inner = [path, _join(path, self._dice.choice(_DIRECTORIES))][: self._dice.choice((1, 1, 2))]
        names = [name for name in _NAMES if "/" not in name]
        files = [_join(each, name) for each in inner for name in self._dice.sample(names, self._dice.randint(1, 4))]
        self._make_directory(path, files)

    def _remove_directory(self, path: str) -> None:
        """With all that is below it, at once; of a file set, only its own files."""
        gone = [each for each in self._files if each.startswith(f"{path}/") or not path]
        if path in self._made:
            gone = [each for each in gone if _above(each) == path and not each.endswith(_KEPT)]
            for each in gone:
                (self._root / each).unlink()
        else:
            shutil.rmtree((self._root / path).rename(self._aside / "removed"))
        for each in gone:
            del self._files[each]

    def _make_directory(self, path: str, files: Sequence[str] = ()) -> None:
        made = self._aside / "made"
        directories = sorted({path, *map(_above, files)})
        for each in directories:
            inner = made / each[len(path) + 1 :]
            inner.mkdir()
            inner.chmod(_DIRECTORY_MODES[len(each) % len(_DIRECTORY_MODES)])
        for file in files:
            self.write(file, self._draw_length(), made / file[len(path) + 1 :])
        made.rename(self._root / path)

    def write(self, path: str, length: int, place: Path | None = None, mode: int | None = None) -> None:
        """Put the next version of ``path`` to ``place``; None: to its own place, where it replaces the last one.

        ``mode`` None: it is drawn by lot.
        """
        name, target = _join(self.place, path), place or self._root / path
        content = make_content(name, len(self.history[name]) + 1, length)
        self._last_mtime_ns = max(self._last_mtime_ns + 1, time.time_ns())
        version = FileVersion(len(content), self._last_mtime_ns, mode or self._dice.choice(_FILE_MODES))
        made = self._aside / "file"
        made.write_bytes(content)
        made.chmod(version.mode)
        os.utime(made, ns=(version.mtime_ns, version.mtime_ns))
        # Before anybody can see it.
        self.history[name].append(version)
        target.parent.mkdir(exist_ok=True)
        made.replace(target)
        self._files[path] = length

    def _draw_length(self) -> int:
        ((low, high),) = self._dice.choices(_LENGTHS, _LENGTH_WEIGHTS)
        return self._dice.randint(low, high)


class TreeFeeder(Feeder):
    """Changes a tree now and then, a little or a lot."""

    def __init__(self, trees: Sequence[SourceTree], dice: random.Random) -> None:
        super().__init__(_FEED_EVERY_S)
        self._trees = trees
        self._dice = dice

    def add_some(self) -> None:
        tree = self._dice.choice(self._trees)
        for _change in range(self._dice.choice(_CHANGES)):
            tree.change()


def _above(path: str) -> str:
    return path.rpartition("/")[0]


def _join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name
