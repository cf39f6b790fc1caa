"""Programs of Debian's packages, unpacked into a folder: nothing is installed, and no right is needed."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_WAIT_S_MAX = 300.0


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
    _run(["apt-get", "download", "-q", *packages], folder)
    for package in sorted(folder.glob("*.deb")):
        _run(["dpkg", "-x", package.name, "."], folder)
    libraries = sorted({str(path.parent) for path in folder.glob("usr/lib/**/*.so.*")})
    environment = {"LD_LIBRARY_PATH": ":".join(libraries)} if libraries else {}
    path = str(folder / "usr/bin" / name)
    return Program(path, _version_of(path, environment), environment)


def _version_of(path: str, environment: Mapping[str, str]) -> str:
    return _run([path, "--version"], Path("/"), environment).splitlines()[0]


def _run(words: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
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
        raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1])
    return done.stdout
