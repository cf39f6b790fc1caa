"""One process at a time fetches a set of jars, since Ivy's cache has no lock; all Spark processes of a user share it.

Two processes that fetch at once find each other's half-written files, and report that Maven has no such jar. Jars that
were fetched once are only read later, so a set that has its mark needs no lock.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

# Where Spark 4 keeps the cache. The marks lie in it, so that a person who empties it removes them too.
_DEFAULT_CACHE: Final = "~/.ivy2.5.2"
_LOCK: Final = "gobblin-fetching.lock"


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
