"""Jars by Maven coordinates, fetched once into the user's cache by the Ivy that ships with Spark.

Ivy reaches a mirror or a proxy by the same settings as any Java program: JAVA_TOOL_OPTIONS, or a settings file of Ivy's
that GOBBLIN_IVY_SETTINGS names. A machine without a network can take a copy of the folder from another machine.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

import pyspark

from gobblin_assets.errors import RejectedError
from gobblin_assets.settings import cache_folder

CACHE_VARIABLE: Final = "GOBBLIN_JAR_CACHE"
"""Names the folder for the jars; without it they are below the user's cache folder."""

IVY_SETTINGS_VARIABLE: Final = "GOBBLIN_IVY_SETTINGS"

RESOLVE_S_MAX: Final = 900.0
"""Some ninety jars take half a minute as a rule, and several minutes on a slow line."""

REPORT_EVERY_S: Final = 10.0

_LOG_CHARACTERS_MAX: Final = 2_000


def resolve_jars(name: str, coordinates: Sequence[str], *, say: Callable[[str], None] = lambda _line: None) -> Path:
    """The folder with the jars of these coordinates and of all that they need at run time.

    A coordinate may name another file than a jar, and which one of several: ``org:name:version:zip:linux-amd64``.
    ``name`` begins the folder's name, before a mark of the coordinates. Processes that ask at the same time wait for
    the first; ``say`` reports each wait. RejectedError when the jars can't be fetched.
    """
    mark = hashlib.sha256("\n".join(coordinates).encode()).hexdigest()[:12]
    folder = _cache_folder() / f"{name}-{mark}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    say(f"Fetching the jars of {coordinates[0]} and what they need, once, into {folder}")
    with (folder.parent / f"{folder.name}.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _fetch(coordinates, folder, say)
    return folder


def _cache_folder() -> Path:
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given).expanduser().absolute()
    return cache_folder() / "jars"


def _fetch(coordinates: Sequence[str], folder: Path, say: Callable[[str], None]) -> None:
    """The folder appears complete, by a rename: a folder that exists is never half full."""
    work = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        (work / "ivy.xml").write_text(_describe_module(coordinates), encoding="utf-8")
        settings = os.environ.get(IVY_SETTINGS_VARIABLE)
        log = work / "ivy.log"
        command = [
            *("java", "-jar", str(_find_ivy()), *(("-settings", settings) if settings else ())),
            *("-ivy", str(work / "ivy.xml"), "-cache", str(folder.parent / "ivy"), "-types", "jar", "bundle", "zip"),
            *("-retrieve", f"{work}/jars/[artifact]-[revision](-[classifier]).[ext]"),
        ]
        if _run_ivy(command, log, say) != 0:
            raise RejectedError(
                f"can't be fetched:\n{log.read_text(errors='replace')[-_LOG_CHARACTERS_MAX:]}",
                field=", ".join(coordinates),
                hint=f"Make a Maven repository reachable (a mirror by {IVY_SETTINGS_VARIABLE}), or copy "
                f"{folder} from a machine that has it.",
            )
        (work / "jars").rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_ivy(command: Sequence[str], log: Path, say: Callable[[str], None]) -> int:
    """Its exit code; -9 if it took longer than ``RESOLVE_S_MAX``."""
    begun = time.monotonic()
    with (
        log.open("wb") as output,
        subprocess.Popen(  # noqa: S603  Spark's own jar, our own words
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            while True:
                try:
                    return process.wait(REPORT_EVERY_S)
                except subprocess.TimeoutExpired:
                    waited_s = time.monotonic() - begun
                say(f"Still fetching jars after {waited_s:.0f} s")
                if waited_s > RESOLVE_S_MAX:
                    process.kill()
        finally:
            process.kill()


def _find_ivy() -> Path:
    found = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise RejectedError("expected Ivy's jar among Spark's, found none", field="pyspark", hint="Reinstall pyspark.")
    return found[-1]


def _describe_module(coordinates: Sequence[str]) -> str:
    """Ivy's own file, with each coordinate's jar and the jars that it needs at run time."""
    wanted = "".join(map(_describe_dependency, coordinates))
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="gobblin_assets" module="jars"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{wanted}</dependencies></ivy-module>'
    )


def _describe_dependency(coordinate: str) -> str:
    org, name, version, *other = coordinate.split(":")
    artifact = ""
    if other:
        kind, classifier = map(quoteattr, other)
        artifact = f"<artifact name={quoteattr(name)} type={kind} ext={kind} m:classifier={classifier}/>"
    named = f"org={quoteattr(org)} name={quoteattr(name)} rev={quoteattr(version)}"
    return f'<dependency {named} conf="default->default">{artifact}</dependency>'
