"""Several worker processes of one machine: those that die are started again, and all end together."""

import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.model.clock import Clock, SystemClock

_LOOK_S: Final = 0.5
_BACK_OFF_S: Final = 1.0
_BACK_OFF_S_MAX: Final = 60.0
REFUSED: Final = 2
"""The exit code of a worker whose job was refused: another try would be refused as well."""


@dataclass(slots=True)
class WorkerGroup:
    """A group of worker processes. ``start`` starts one."""

    start: Callable[[], "subprocess.Popen[bytes]"]
    count: int
    say: Callable[[str], None]
    clock: Clock = field(default_factory=SystemClock)

    def run(self, wait: Callable[[float], bool]) -> bool:
        """Keep so many processes alive until ``wait`` says to stop, or all have ended well; whether they ended well.

        False, and the others are stopped, if a process says that its job is refused.
        """
        processes = [self.start() for _number in range(self.count)]
        failures = 0
        not_before_s = 0.0
        is_refused = False
        while not wait(_LOOK_S) and not is_refused and any(process.poll() != 0 for process in processes):
            now_s = self.clock.monotonic()
            for place, process in enumerate(processes):
                code = process.poll()
                if code is None or code == 0:
                    continue
                if code == REFUSED:
                    is_refused = True
                elif now_s >= not_before_s:
                    failures += 1
                    not_before_s = now_s + min(_BACK_OFF_S_MAX, _BACK_OFF_S * 2 ** min(failures, 6))
                    self.say(f"worker {process.pid} ended with {code}; another one is started")
                    processes[place] = self.start()
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        codes = [process.wait() for process in processes]
        return not is_refused and all(code == 0 for code in codes)
