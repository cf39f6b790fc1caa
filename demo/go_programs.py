"""Programs that Go builds once, each at a pinned version, into the user's cache folder."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.settings import cache_folder

BUILD_S_MAX: Final = 1_800.0

_SAID_CHARACTERS_MAX: Final = 3_000


def build_go_program(package: str, version: str) -> Path:
    """The program of a package, such as ``example.com/tools/cmd/x``, at this version.

    RejectedError where there is no Go, and where Go can't build it.
    """
    name = package.rpartition("/")[2]
    cache = cache_folder() / "go"
    program = cache / f"{name}-{version}"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise RejectedError(f"building {name} needs Go, found none", field="PATH", hint="Install Go 1.24 or newer.")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            work = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=cache))
            try:
                _install(go, f"{package}@{version}", work)
                # It appears complete, by a rename.
                (work / name).rename(program)
            finally:
                shutil.rmtree(work)
    return program


def _install(go: str, wanted: str, folder: Path) -> None:
    done = subprocess.run(  # noqa: S603  our own words
        [go, "install", wanted],
        env={**os.environ, "GOBIN": str(folder)},
        capture_output=True,
        check=False,
        timeout=BUILD_S_MAX,
    )
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace")[-_SAID_CHARACTERS_MAX:]
        raise RejectedError(
            f"{wanted} could not be built:\n{said}", field="go", hint="Go's module proxy must be reachable."
        )
