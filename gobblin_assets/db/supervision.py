"""Restarts the embedded Postgres when it died: from a thread of a long-lived process, and where a connection is made.

Dagster's storage is in the same server as the commit log: while the server is down no sensor can tick, so nothing else
would start it again. A server that died left its cluster marked as working, and has no mark that it must stay down. A
server that was stopped, by ``gobblin-assets db stop`` or by Postgres' own means, is never started from here, and
neither is a server that was never started. Several supervisors may share a home: only the holder of ``start.lock``
acts, the others wait for their next look.
"""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gobblin_assets.db.cluster import ClusterFiles, try_lock
from gobblin_assets.db.embedded import Say, files_of, start_held
from gobblin_assets.db.postmaster import is_seen
from gobblin_assets.errors import GobblinError

LOOK_EVERY_S: Final = 1.0
"""Seconds between looks. A look reads a few small files, and connects to nothing."""

REST_S_MAX: Final = 60.0
"""The longest rest before a server that can't start (a full disk) is tried again; rests grow up to this."""


def revive(home: Path, say: Say) -> bool:
    """Start the server of ``home`` if it died; True if it did. Raises as ``embedded.start``."""
    files = files_of(home)
    # Without a lock as long as the server runs: a process that is forked while a lock is held would keep the lock.
    if is_seen(files) or not os.access(files.start_lock, os.W_OK):
        return False
    with try_lock(files.start_lock) as start_lock:
        # Checked under the lock: otherwise a `stop` between the check and the start would be undone.
        if start_lock is None or not _has_died(files):
            return False
        say(f"The embedded Postgres of {home} has died; it is started again.")
        start_held(files, say, start_lock)
        return True


def _has_died(files: ClusterFiles) -> bool:
    """Whether a server that was started is gone without having been stopped."""
    if files.stopped_mark.exists() or files.find_endpoint() is None:
        return False
    with try_lock(files.running_lock) as running:
        return running is not None and not files.is_shut_down()


@dataclass(slots=True)
class Supervisor:
    """The supervisor of the server of ``home``. ``wait`` sleeps this many seconds; True if the supervisor must end."""

    home: Path
    say: Say
    wait: Callable[[float], bool]
    _failures: int = field(default=0, init=False)

    def run(self) -> None:
        """Look after the server until ``wait`` returns True."""
        rest_s = LOOK_EVERY_S
        while not self.wait(rest_s):
            rest_s = self.look()

    def look(self) -> float:
        """Start the server if it died; returns how many seconds to rest until the next look."""
        try:
            revive(self.home, self.say)
        except (GobblinError, OSError) as error:
            self._failures += 1
            rest_s = min(REST_S_MAX, LOOK_EVERY_S * 2.0 ** min(self._failures, 10))
            self.say(f"The embedded Postgres of {self.home} can't be started, next try in {rest_s:.0f} s: {error}")
            return rest_s
        self._failures = 0
        return LOOK_EVERY_S


_SUPERVISED: Final[set[Path]] = set()
_LOCK: Final = threading.Lock()


def supervise(home: Path, say: Say) -> None:
    """Supervise the server of ``home`` as long as this process lives; repeated calls start only one supervisor."""
    with _LOCK:
        if home in _SUPERVISED:
            return
        _SUPERVISED.add(home)
    supervisor = Supervisor(home, say, threading.Event().wait)
    threading.Thread(target=supervisor.run, name="gobblin-postgres-supervisor", daemon=True).start()
