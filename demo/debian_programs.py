"""Files of Debian's packages, which apt brings once, without a right of root, into the user's cache folder."""

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.settings import cache_folder

_BRING_S_MAX: Final = 120.0
_SAID_CHARACTERS_MAX: Final = 1_000


def find_debian_files(
    name: str, packages: Sequence[str], wanted: Sequence[str], *, say: Callable[[str], None] = lambda _line: None
) -> tuple[Path, ...]:
    """The files of the packages whose paths fit ``wanted``, such as ``*/sbin/nginx``, in this order of patterns.

    ``name``: of the folder that keeps them. ``say`` hears that they are fetched. RejectedError, with what apt says,
    where they can't be.
    """
    kept = cache_folder() / name
    if not kept.exists():
        say(f"Fetching {name} from the packages of Debian, once, into {kept}")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with (kept.parent / f"{name}.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            with tempfile.TemporaryDirectory(prefix=f"{name}.", dir=kept.parent) as work:
                _bring(Path(work), name, packages, wanted)
                # It appears complete, by a rename.
                (Path(work) / "found").rename(kept)
    return _choose(kept, wanted)


def _choose(folder: Path, wanted: Sequence[str]) -> tuple[Path, ...]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return tuple(path for pattern in wanted for path in files if fnmatch(f"/{path.relative_to(folder)}", pattern))


def _bring(work: Path, name: str, packages: Sequence[str], wanted: Sequence[str]) -> None:
    """Into ``found`` in the folder."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise _refuse(name, "is not installed, and there is no apt-get that could fetch it")
    if _run_apt(work, "download", *packages) is not None:
        # The machine has no lists of packages, or old ones: only root may renew them, so here are others.
        lists = _own_lists(work)
        said = _run_apt(work, *lists, "update") or _run_apt(work, *lists, "download", *packages)
        if said is not None:
            raise _refuse(name, f"is not installed, and apt-get can't fetch it:\n{said}")
    for package in work.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package.name, "all"], cwd=work, check=True, capture_output=True)  # noqa: S603, S607  the machine's
    for path in _choose(work / "all", wanted):
        kept = work / "found" / path.relative_to(work / "all")
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, kept)
    if not _choose(work / "found", wanted[:1]):
        raise _refuse(name, f"is not installed, and the packages {', '.join(packages)} have no {wanted[0]}")


def _run_apt(work: Path, *words: str) -> str | None:
    """What apt says of its failure; None: it succeeded."""
    try:
        done = subprocess.run(  # noqa: S603  our own words
            ["apt-get", *words],  # noqa: S607  the machine's
            cwd=work,
            capture_output=True,
            check=False,
            timeout=_BRING_S_MAX,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"it has not ended in {_BRING_S_MAX:.0f} s"
    return None if done.returncode == 0 else done.stderr.decode(errors="replace")[-_SAID_CHARACTERS_MAX:].strip()


def _own_lists(work: Path) -> Sequence[str]:
    """Options of apt: its lists are in this folder."""
    for folder in ("lists/partial", "cache/archives/partial"):
        (work / folder).mkdir(parents=True)
    return ("-o", f"Dir::State::lists={work}/lists", "-o", f"Dir::Cache={work}/cache")


def _refuse(name: str, said: str) -> RejectedError:
    return RejectedError(f"{name} {said}", field="PATH", hint=f"Install the package {name}.")
