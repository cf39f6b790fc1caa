"""The demo's trees: real files to copy, what changes in them, and the comparison of both sides."""

import hashlib
import os
import shutil
import stat
import sysconfig
from pathlib import Path
from typing import Final

PACKAGES: Final = ("json", "email", "http", "unittest", "concurrent", "importlib")
"""Of Python's own library: some two hundred files that every machine has."""

DATASETS: Final = ("pages", "data")

Description = tuple[object, ...]
"""The mode; of a file also its modification time in nanoseconds, and the digest of its bytes."""

_MODES: Final = {"data": 0o711, "data/day=2": 0o750, "pages": 0o700, "pages/json": 0o770}


def make_source(root: Path) -> dict[str, int]:
    """Copy packages of Python's library to ``pages``, and write a few larger files to ``data``. Counts."""
    library = Path(sysconfig.get_path("stdlib"))
    for package in PACKAGES:
        shutil.copytree(library / package, root / "pages" / package, ignore=shutil.ignore_patterns("__pycache__"))
    for day in range(1, 4):
        folder = root / "data" / f"day={day}"
        folder.mkdir(parents=True)
        for part in range(4):
            (folder / f"part-{part}.bin").write_bytes(os.urandom(1 << 20))
        (folder / "_SUCCESS").touch()
    for path, mode in _MODES.items():
        (root / path).chmod(mode)
    return count(root)


def change_source(root: Path) -> dict[str, int]:
    """New, rewritten and removed files. Counts by what was done."""
    pages = sorted((root / "pages").rglob("*.py"))
    for path in pages[::7]:
        path.write_text(path.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    for path in pages[3::11]:
        path.unlink()
    folder = root / "data" / "day=4"
    folder.mkdir()
    for part in range(4):
        (folder / f"part-{part}.bin").write_bytes(os.urandom(1 << 20))
    (folder / "_SUCCESS").touch()
    (root / "data" / "day=1" / "part-0.bin").write_bytes(os.urandom(1 << 19))
    removed = set(pages[3::11])
    return {
        "rewritten": len([each for each in pages[::7] if each not in removed]) + 1,
        "removed": len(removed),
        "new": 5,
    }


def count(root: Path) -> dict[str, int]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {"files": len(files), "bytes": sum(path.stat().st_size for path in files)}


def describe(root: Path) -> dict[str, Description]:
    """Each file and each directory by its path."""
    found: dict[str, Description] = {}
    for path in root.rglob("*"):
        relative, entry = path.relative_to(root), path.lstat()
        if relative.parts[0] not in DATASETS:
            continue
        mode = stat.S_IMODE(entry.st_mode)
        if stat.S_ISDIR(entry.st_mode):
            found[str(relative)] = (mode,)
        else:
            found[str(relative)] = (mode, entry.st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
    return found
