"""The processes of attempts, and one more, which has its imports done and waits for the next claim.

A process hears through a pipe: first a line that names its claim, then what ``interruption`` says. If the executor
dies, the pipe ends, and a process that still waits for a claim ends with it.
"""

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Final, Protocol

from gobblin_assets.model.clock import Clock
from gobblin_assets.model.job_ticket import TicketId
from gobblin_assets.state.tickets import Claim

SPARE_AFTER_S: Final = 3.0
"""So long after a process was started, the next spare one is: its imports do not delay the work that has begun."""


class AttemptProcess(Protocol):
    """The process of an attempt, as ``subprocess.Popen`` is one. ``stdin``: a pipe, of which it reads the other end."""

    @property
    def stdin(self) -> IO[bytes] | None: ...
    def poll(self) -> int | None: ...
    def kill(self) -> None: ...


class AttemptProcesses(Protocol):
    """The source of the processes of attempts."""

    def start(self, claim: Claim) -> AttemptProcess:
        """The process that works on the claim. OSError: none can be started."""
        ...

    def prepare(self) -> None:
        """Make the next start faster. Called while the executor has nothing else to do."""
        ...

    def close(self) -> None:
        """End what waits for a claim."""
        ...


@dataclass(slots=True)
class SpareProcesses:
    """``spawn`` starts a process that waits for its claim. One of them is kept as a spare."""

    spawn: Callable[[], AttemptProcess]
    clock: Clock
    _spare: AttemptProcess | None = None
    _prepare_at_s: float = 0.0

    def start(self, claim: Claim) -> AttemptProcess:
        self._prepare_at_s = self.clock.monotonic() + SPARE_AFTER_S
        spare, self._spare = self._spare, None
        if spare is not None:
            try:
                hand_over(spare, claim)
            except OSError:
                _end(spare)
            else:
                return spare
        process = self.spawn()
        hand_over(process, claim)
        return process

    def prepare(self) -> None:
        now_s = self.clock.monotonic()
        if now_s < self._prepare_at_s or (self._spare is not None and self._spare.poll() is None):
            return
        self.close()
        # One that dies at once is not started again at once.
        self._prepare_at_s = now_s + SPARE_AFTER_S
        with suppress(OSError):
            self._spare = self.spawn()

    def close(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            _end(spare)


def hand_over(process: AttemptProcess, claim: Claim) -> None:
    """Name its claim to a process that waits for one. OSError: it has died."""
    if process.stdin is None:
        raise ValueError("the process of an attempt needs a pipe")
    process.stdin.write(f"{claim.ticket_id} {claim.attempt}\n".encode())
    process.stdin.flush()


def await_claim(pipe: int) -> Claim | None:
    """The claim of this process, as ``hand_over`` names it. None: the executor ended first."""
    # By single bytes: what follows the line is for the watch of the attempt.
    line = bytearray()
    while (said := os.read(pipe, 1)) != b"\n":
        if not said:
            return None
        line += said
    ticket_id, attempt = line.decode().split()
    return Claim(TicketId(uuid.UUID(ticket_id)), int(attempt))


def _end(process: AttemptProcess) -> None:
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    process.kill()
