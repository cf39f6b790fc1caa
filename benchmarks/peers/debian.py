"""Programs of Debian's packages, unpacked into a folder: nothing is installed, and no right is needed."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_WAIT_S_MAX = 600.0
_ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Program:
    """``path`` with the environment that it needs, and the first line that it says of its version."""

    path: str
    version: str
    environment: Mapping[str, str] = field(default_factory=dict)


def find_program(name: str, folder: Path, packages: Sequence[str]) -> Program:
    """The installed program, or the one of these packages, with their libraries. RuntimeError says what is missing."""
    installed = shutil.which(name)
    if installed is not None:
        return Program(installed, _version_of(installed, {}))
    folder.mkdir(parents=True)
    run_peer(["apt-get", "download", "-q", *packages], folder=folder)
    for package in sorted(folder.glob("*.deb")):
        run_peer(["dpkg", "-x", package.name, "."], folder=folder)
    libraries = sorted({str(path.parent) for path in folder.glob("usr/lib/**/*.so.*")})
    environment = {"LD_LIBRARY_PATH": ":".join(libraries)} if libraries else {}
    path = str(folder / "usr/bin" / name)
    return Program(path, _version_of(path, environment), environment)


def _version_of(path: str, environment: Mapping[str, str]) -> str:
    return run_peer([path, "--version"], environment).splitlines()[0]


def run_peer(words: Sequence[str], environment: Mapping[str, str] | None = None, *, folder: Path = _ROOT) -> str:
    """What it prints. ``environment``: besides this process's own. RuntimeError with its last line if it fails."""
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=_WAIT_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"{words[0]}: {error}") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise RuntimeError(f"{words[0]}: {said[-1]}")
    return done.stdout
