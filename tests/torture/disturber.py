"""Disturbs all runners at once, by the schedule: Postgres, the broker and the disk."""

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from demo.kafka.broker import KafkaBroker
from tests.torture import isolation
from tests.torture.schedule import Disturbance, Injection
from tests.torture.server import Victim
from tests.torture.tally import Tally

Strike = Callable[[float], bool]

_BALLAST: Final = "ballast"
_LEFT_BYTES_MAX: Final = 64 * 1024
_CHUNK: Final = b"\0" * 65_536
_REMOUNT_TRIES_MAX: Final = 200


class Disturber:
    """Carries out disturbances, one after the other, in its own thread. ``strikes``: the functions, by kind."""

    def __init__(self, planned: Sequence[Disturbance], strikes: Mapping[Injection, Strike], tally: Tally) -> None:
        self._planned = planned
        self._strikes = strikes
        self._tally = tally
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop after the present disturbance, which mends its damage as always."""
        self._stopping.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        begun = time.monotonic()
        try:
            for disturbance in self._planned:
                if self._stopping.wait(max(0.0, begun + disturbance.at_s - time.monotonic())):
                    return
                if self._strikes[disturbance.injection](disturbance.lasts_s):
                    self._tally.add(disturbance.injection)
        except BaseException as error:  # noqa: BLE001  it is raised again by the thread that waits
            self._error = error


def strikes_on_the_server(victim: Victim) -> Mapping[Injection, Strike]:
    def killed(lasts_s: float) -> bool:
        victim.kill(signal.SIGKILL, lasts_s)
        return True

    def stopped(lasts_s: float) -> bool:
        victim.kill(signal.SIGQUIT, lasts_s)
        return True

    return {
        Injection.SERVER_KILLED: killed,
        Injection.SERVER_STOPPED: stopped,
        Injection.BACKEND_KILLED: lambda _lasts_s: victim.kill_backend(),
    }


def strikes_on_the_broker(broker: KafkaBroker) -> Mapping[Injection, Strike]:
    def killed(lasts_s: float) -> bool:
        broker.kill()
        time.sleep(lasts_s)
        broker.restart()
        return True

    def paused(lasts_s: float) -> bool:
        broker.pause()
        time.sleep(lasts_s)
        broker.resume()
        return True

    return {Injection.BROKER_KILLED: killed, Injection.BROKER_PAUSED: paused}


def strikes_on_the_disk(mount: Path) -> Mapping[Injection, Strike]:
    def full(lasts_s: float) -> bool:
        ballast = mount / _BALLAST
        with suppress(OSError), ballast.open("wb", buffering=0) as out:
            while True:
                out.write(_CHUNK)
        # A little space is left, so that each time a different call meets the end of it.
        os.truncate(ballast, max(0, ballast.stat().st_size - int(_LEFT_BYTES_MAX * lasts_s) % _LEFT_BYTES_MAX))
        time.sleep(lasts_s)
        ballast.unlink()
        return True

    def read_only(lasts_s: float) -> bool:
        for _ in range(_REMOUNT_TRIES_MAX):
            if isolation.remount(mount, "ro"):
                break
            time.sleep(0.005)
        else:
            return False
        time.sleep(lasts_s)
        isolation.remount(mount, "rw")
        return True

    return {Injection.DISK_FULL: full, Injection.READ_ONLY: read_only}
