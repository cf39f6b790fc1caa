"""The torture's folder. If its owner was killed, the next torture removes the folder and stops its servers."""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gobblin_assets.db import embedded
from gobblin_assets.spark import connect_server
from tests.support.postgres import make_reachable_directory

PREFIX: Final = "gobblin-torture-"
SPARK_FOLDER: Final = "connect"
_LOCK: Final = "torture.lock"


@contextmanager
def hold_home(given: Path | None) -> Iterator[Path]:
    """An empty folder, locked for as long as we live. The caller decides what happens to it afterwards."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{_LOCK}"):
        _sweep(lock)
    home = given or make_reachable_directory(PREFIX)
    with (home / _LOCK).open("w", encoding="ascii") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        try:
            yield home
        finally:
            # Without its lock, a folder that is kept for a person is never removed by a later torture.
            (home / _LOCK).unlink(missing_ok=True)


def _sweep(lock: Path) -> None:
    with lock.open("r+", encoding="ascii") as lock_file:
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        stop_servers(lock.parent)
        shutil.rmtree(lock.parent)


def stop_servers(home: Path) -> None:
    """Stop the servers of every arena, also of one that was not completed."""
    for arena in filter(Path.is_dir, home.iterdir()):
        connect_server.stop_connect(arena / SPARK_FOLDER)
        embedded.stop(arena)
