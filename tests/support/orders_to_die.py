"""Orders to processes of other programs, such as Dagster's runs, by a file: to die, to stop or to wait at a failpoint.

The file ``order`` has a failpoint and an action: a signal's name, or ``wait``. The first process that reaches the
failpoint takes the order: it renames the file to ``obeyed``. One that waits goes on when that file is gone.
"""

import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path

from gobblin_assets import failpoints
from gobblin_assets.failpoints import Failpoint

WAIT = "wait"
_POLL_S = 0.05

# Held for as long as the process lives.
_armed = ExitStack()


def obey(folder: Path) -> None:
    """From now on, this process obeys the orders in the folder."""
    order, obeyed = folder / "order", folder / "obeyed"

    def hear(reached: Failpoint) -> None:
        try:
            point, action = order.read_text(encoding="ascii").split()
            if point != reached:
                return
            order.rename(obeyed)
        except FileNotFoundError:
            return
        if action != WAIT:
            os.kill(os.getpid(), signal.Signals[action])
        while action == WAIT and obeyed.exists():
            time.sleep(_POLL_S)

    _armed.enter_context(failpoints.install(hear))


def give_order(folder: Path, point: Failpoint, action: str) -> None:
    """``action``: a signal's name, such as SIGKILL, or ``wait``."""
    (folder / "obeyed").unlink(missing_ok=True)
    written = folder / "order.new"
    written.write_text(f"{point.value} {action}", encoding="ascii")
    written.rename(folder / "order")
