"""Files of Debian's packages, which apt brings once, without a right of root, into the user's cache folder."""

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from gobblin_assets.settings import cache_folder

_BRING_S_MAX: Final = 120.0


def find_debian_files(name: str, packages: Sequence[str], wanted: Sequence[str]) -> tuple[Path, ...]:
    """The files of the packages whose paths fit ``wanted``, such as ``*/sbin/nginx``, in this order of patterns.

    ``name``: of the folder that keeps them. Nothing where apt can't bring them.
    """
    kept = cache_folder() / name
    kept.parent.mkdir(parents=True, exist_ok=True)
    with (kept.parent / f"{name}.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            with tempfile.TemporaryDirectory(prefix=f"{name}.", dir=kept.parent) as work:
                if not _bring(Path(work), packages, wanted):
                    return ()
                # It appears complete, by a rename.
                (Path(work) / "found").rename(kept)
    return _choose(kept, wanted)


def _choose(folder: Path, wanted: Sequence[str]) -> tuple[Path, ...]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return tuple(path for pattern in wanted for path in files if fnmatch(f"/{path.relative_to(folder)}", pattern))


def _bring(work: Path, packages: Sequence[str], wanted: Sequence[str]) -> bool:
    """Into ``found`` in the folder. False: the first of the files is not there."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return False
    done = subprocess.run(  # noqa: S603  our own words
        ["apt-get", "download", *packages],  # noqa: S607  the machine's
        cwd=work,
        capture_output=True,
        check=False,
        timeout=_BRING_S_MAX,
        stdin=subprocess.DEVNULL,
    )
    for package in work.glob("*.deb") if done.returncode == 0 else ():
        subprocess.run(["dpkg-deb", "-x", package.name, "all"], cwd=work, check=True, capture_output=True)  # noqa: S603, S607  the same
    found = _choose(work / "all", wanted)
    for path in found:
        kept = work / "found" / path.relative_to(work / "all")
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, kept)
    return bool(_choose(work / "found", wanted[:1]))
