"""The Java that Spark will run on, the variables that its JVM starts with, and the jars that it fetches first.

PySpark refuses a remote beside MASTER, in a text with the whole address and its token; spark-submit takes DEPLOY_MODE
and SPARK_REMOTE over what it is given. So variables that name a master or a server are left out, since nobody gave them
to the product. Variables of sizes, folders and Java options stay: they are how a site sets Spark up.

Ivy's cache has no lock, and all Spark processes of a user share it. Two processes that fetch at once find each other's
half-written files, and report that Maven has no such jar. So one process at a time fetches a set of jars. Jars that
were fetched once are only read later: a set that has its mark needs no lock.
"""

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gobblin_assets.errors import RejectedError

JAVA_VERSIONS: Final = (17, 21)
"""The versions that Spark 4 is tested on."""

JAVA_ANSWER_S: Final = 30.0
"""A JVM prints its version in a tenth of a second; a loaded machine may take a few."""

_WANTED: Final = " or ".join(map(str, JAVA_VERSIONS))
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')

_ADDRESSES: Final = frozenset({"MASTER", "DEPLOY_MODE", "SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE"})
_SUBMIT_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_ADDRESS_OPTIONS: Final = ("--master", "--remote", "--deploy-mode")

# Where Spark 4 keeps the cache. The marks lie in it, so that a person who empties it removes them too.
_DEFAULT_CACHE: Final = "~/.ivy2.5.2"
_LOCK: Final = "gobblin-fetching.lock"


def check_java(environment: Mapping[str, str] | None = None) -> int:
    """The major version of the Java that Spark's own scripts would find. RejectedError unless Spark takes it."""
    variables = os.environ if environment is None else environment
    java = find_java(variables)
    try:
        answer = subprocess.run(  # noqa: S603  the path is JAVA_HOME's, which Spark's scripts run as well
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_ANSWER_S, check=False, env=dict(variables)
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _refuse(f"{java}, which does not run ({error})") from error
    found = _VERSION.search(answer.stderr) or _VERSION.search(answer.stdout)
    if found is None:
        raise _refuse(f"{java}, which names no version")
    if int(found[1]) not in JAVA_VERSIONS:
        raise _refuse(f"version {found[1]} ({java})")
    return int(found[1])


def find_java(variables: Mapping[str, str]) -> str:
    """The path of the Java in ``JAVA_HOME``, else on the ``PATH``. RejectedError if there is none."""
    if home := variables.get("JAVA_HOME"):
        java = Path(home, "bin", "java")
        if not java.is_file():
            raise _refuse(f"no bin/java in JAVA_HOME ({home})")
        return str(java)
    found = shutil.which("java", path=variables.get("PATH", ""))
    if found is None:
        raise _refuse("none")
    return found


def _refuse(found: str) -> RejectedError:
    return RejectedError(
        f"expected version {_WANTED}, found {found}.",
        field="java",
        hint=f"Install OpenJDK {_WANTED} (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME to one.",
    )


def without_addresses(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables, except those that say where Spark runs."""
    kept = {name: value for name, value in environment.items() if name not in _ADDRESSES}
    if _SUBMIT_ARGUMENTS in kept:
        kept[_SUBMIT_ARGUMENTS] = _drop_address_options(kept[_SUBMIT_ARGUMENTS])
    return kept


@contextmanager
def own_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """The process's environment inside the block: ``variables`` where it has none, and no address of another Spark.

    PySpark reads it, and hands it on to the processes that it starts.
    """
    before = dict(os.environ)
    inside = {**variables, **without_addresses(before)}
    changed = {name for name in {*before, *inside} if before.get(name) != inside.get(name)}
    _set(inside, changed)
    try:
        yield
    finally:
        _set(before, changed)


def _set(values: Mapping[str, str], names: set[str]) -> None:
    for name in names:
        if name in values:
            os.environ[name] = values[name]
        else:
            os.environ.pop(name, None)


def _drop_address_options(text: str) -> str:
    kept: list[str] = []
    words = iter(shlex.split(text))
    for word in words:
        if word in _ADDRESS_OPTIONS:
            next(words, None)
        elif not word.startswith(tuple(f"{option}=" for option in _ADDRESS_OPTIONS)):
            kept.append(word)
    return shlex.join(kept)


@contextmanager
def fetching_alone(conf: Mapping[str, str], say: Callable[[str], None] | None = None) -> Iterator[None]:
    """Start a JVM with ``conf`` in the block; the block ends when the JVM has its jars, or fails.

    ``say`` reports a wait for another process. If the cache can't be written, Spark reports it.
    """
    packages = conf.get("spark.jars.packages", "")
    excluded = conf.get("spark.jars.excludes", "")
    cache = Path(conf.get("spark.jars.ivy", _DEFAULT_CACHE)).expanduser()
    asked = f"{packages} without {excluded}" if excluded else packages
    mark = cache / f"gobblin-fetched-{hashlib.sha256(asked.encode()).hexdigest()[:16]}"
    lock = _open_lock(cache) if packages and not mark.exists() else None
    if lock is None:
        yield
        return
    try:
        _wait(lock, say)
        yield
        mark.touch()
    finally:
        os.close(lock)


def _open_lock(cache: Path) -> int | None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        return os.open(cache / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


def _wait(lock: int, say: Callable[[str], None] | None) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if say is not None:
            say("waiting for another process that fetches jars")
        fcntl.flock(lock, fcntl.LOCK_EX)
