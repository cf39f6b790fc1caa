"""Named places in the protocol where a test may kill, stop or disturb this process.

In production nothing is armed and ``reach`` is one dictionary look-up. A crash test starts a real
process with ``GOBBLIN_FAILPOINT=<point>=<action>[@<n>]`` (several joined by commas); the action is taken
at the n-th time (default 1) that the process reaches the point. Actions:

    kill    SIGKILL to this process: no handler runs, nothing is flushed
    interrupt  SIGINT to this process, as Ctrl-C sends it
    stop    SIGSTOP to this process: a zombie, until somebody sends SIGCONT
    lose    raise ``AcknowledgementLost``: what went before took effect, the caller isn't told
    error   raise ``OSError(EIO)``: the call before it reported an error although it took effect
    exit    leave through ``os._exit(70)``

``GOBBLIN_FAILPOINT_LOG`` names a file that gets one line for each armed point that was reached, so that
a test can tell "survived" from "never got there". In-process tests use ``install`` with a callable.
"""

import errno
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path


class Failpoint(StrEnum):
    """Each value is a place between two effects: the effect before it has happened, the effect after it has not."""

    DESTINATION_MARKED = "destination_marked"
    DESTINATION_BOUND = "destination_bound"
    CLAIM_INTENDED = "claim_intended"
    DESTINATION_MOVED = "destination_moved"
    LEASE_TAKEN = "lease_taken"
    RECOVERY_STARTED = "recovery_started"
    SEQUENCE_BEGUN = "sequence_begun"
    ATTEMPT_REGISTERED = "attempt_registered"
    REUSE_MARKED = "reuse_marked"
    REUSE_CAPTURED = "reuse_captured"
    FILE_STAGED = "file_staged"
    FILE_JOURNALED = "file_journaled"
    CONVERSION_BEGUN = "conversion_begun"
    ATTEMPT_WRITTEN = "attempt_written"
    ATTEMPT_DURABLE = "attempt_durable"
    STAGE_COMMITTED = "stage_committed"
    STAGED_BEFORE_SEAL = "staged_before_seal"
    SEAL_COMMITTED = "seal_committed"
    SEALED_BEFORE_EXECUTE = "sealed_before_execute"
    MARKER_WRITTEN = "marker_written"
    ATTEMPTS_CLAIMED = "attempts_claimed"
    ATTEMPTS_CAPTURED = "attempts_captured"
    STEP_BEFORE = "step_before"
    LOAD_COPIED = "load_copied"
    LOAD_BEFORE_COMMIT = "load_before_commit"
    LOAD_COMMITTED = "load_committed"
    STEP_AFTER = "step_after"
    EXECUTED_BEFORE_SYNC = "executed_before_sync"
    SYNCED_BEFORE_VERIFY = "synced_before_verify"
    VERIFIED_BEFORE_FINISH = "verified_before_finish"
    FINISH_COMMITTED = "finish_committed"
    FINISHED_BEFORE_EVENTS = "finished_before_events"
    EVENTS_BEFORE_CLEANUP = "events_before_cleanup"
    EVENTS_SENT = "events_sent"
    REPORT_BEGUN = "report_begun"
    REPORT_SENT = "report_sent"
    REPORT_ENDED = "report_ended"
    TICKET_SENT = "ticket_sent"
    TICKET_RECEIVED = "ticket_received"
    REPORTS_PRODUCED = "reports_produced"
    REPORTS_TOLD = "reports_told"
    REPORTS_TAKEN = "reports_taken"
    TICKET_CLAIMED = "ticket_claimed"
    CLAIMS_RENEWED = "claims_renewed"
    TICKET_REPORTED = "ticket_reported"
    TICKET_ENDED = "ticket_ended"
    DEAD_RUN_ENDED = "dead_run_ended"
    TICKETS_FORGOTTEN = "tickets_forgotten"
    TOPOLOGY_STORED = "topology_stored"
    PACK_STORED = "pack_stored"
    FLOW_STORED = "flow_stored"
    FLOWS_FIRED = "flows_fired"
    PENDING_LAUNCHED = "pending_launched"
    SEND_BEGUN = "send_begun"
    SEND_MARKED = "send_marked"
    MOVE_BEGUN = "move_begun"
    CANCEL_MARKED = "cancel_marked"
    REPORTS_READ = "reports_read"
    REPORTS_FOLDED = "reports_folded"
    OWN_TICKETS_LISTED = "own_tickets_listed"
    TICKET_ADOPTED = "ticket_adopted"
    ADOPTION_MARKED = "adoption_marked"
    CLEANUP_MARKED = "cleanup_marked"
    CLEANUP_CAPTURED = "cleanup_captured"
    CLEANUP_REMOVED = "cleanup_removed"
    GIVE_UP_BEFORE_COMMIT = "give_up_before_commit"
    ABANDON_RECORDED = "abandon_recorded"
    ABANDON_CAPTURED = "abandon_captured"
    ABANDON_RETURNED = "abandon_returned"
    ABANDON_COMMITTED = "abandon_committed"
    FENCE_RAISED = "fence_raised"
    LOST_SEQUENCE_BEGUN = "lost_sequence_begun"
    LOST_SEQUENCE_SEALED = "lost_sequence_sealed"
    LOST_SEQUENCE_ADOPTED = "lost_sequence_adopted"
    LOST_DIRECTORY_MOVED = "lost_directory_moved"
    LOST_FILES_MOVED = "lost_files_moved"
    OPEN_SEQUENCE_ENDED = "open_sequence_ended"
    LOST_MARKER_MOVED = "lost_marker_moved"
    RETIRE_MARKED = "retire_marked"
    RETIRE_REMOVED = "retire_removed"
    VNODES_MOVED = "vnodes_moved"
    FOLD_SEGMENTS_JOINED = "fold_segments_joined"
    FOLD_COMMITTED = "fold_committed"
    SLOT_MADE = "slot_made"
    COPY_READ = "copy_read"
    SLOT_CONFIRMED = "slot_confirmed"


class AcknowledgementLost(ConnectionError):  # noqa: N818  it plays the driver's lost connection, not an error of ours
    """Simulates a connection that broke after the server executed the COMMIT."""


Hook = Callable[[Failpoint], None]

_hooks: list[Hook] = []


def reach(point: Failpoint) -> None:
    """Report that the process has reached the point. Does nothing unless a test armed the point."""
    for hook in tuple(_hooks):
        hook(point)


@contextmanager
def install(hook: Hook) -> Iterator[None]:
    """Call ``hook`` at every point reached inside the block, in any thread."""
    _hooks.append(hook)
    try:
        yield
    finally:
        _hooks.remove(hook)


class ArmedFailpoints:
    """The points that the environment armed, with the count that each waits for."""

    def __init__(self, text: str, log_path: str | None = None) -> None:
        self._log_path = log_path
        self._counting = threading.Lock()
        self._seen: Counter[Failpoint] = Counter()
        self._armed: dict[tuple[Failpoint, int], str] = {}
        for entry in filter(None, (part.strip() for part in text.split(","))):
            name, _, rest = entry.partition("=")
            action, _, count = rest.partition("@")
            if action not in _ACTIONS:
                raise ValueError(f"GOBBLIN_FAILPOINT: {entry!r} has no action out of {sorted(_ACTIONS)}")
            self._armed[Failpoint(name), int(count or 1)] = action

    def __call__(self, point: Failpoint) -> None:
        with self._counting:
            # Threads reach points at once, and each count is to be seen by one of them.
            self._seen[point] += 1
            seen = self._seen[point]
        action = self._armed.get((point, seen))
        if action is None:
            return
        if self._log_path is not None:
            with Path(self._log_path).open("a", encoding="utf-8") as log:
                log.write(f"{point}={action}@{seen}\n")
        _ACTIONS[action](point)


def _kill(_point: Failpoint) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _interrupt(_point: Failpoint) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def _stop(_point: Failpoint) -> None:
    stop_this_process()


def stop_this_process() -> None:
    """Return when somebody has woken the process up.

    The signal goes to the calling thread, which therefore stops here. Sent to the process, it may be taken by another
    thread first, and this one would go on for a moment, past the place where it was to stop.
    """
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def _lose(point: Failpoint) -> None:
    raise AcknowledgementLost(f"acknowledgement lost at {point}")


def _error(point: Failpoint) -> None:
    raise OSError(errno.EIO, f"injected at {point}")


def _exit(_point: Failpoint) -> None:
    os._exit(70)


_ACTIONS: dict[str, Hook] = {
    "kill": _kill,
    "interrupt": _interrupt,
    "stop": _stop,
    "lose": _lose,
    "error": _error,
    "exit": _exit,
}


def arm(text: str, log_path: str | None = None) -> None:
    """Arm points for the rest of this process, as the environment does at its start."""
    _hooks.append(ArmedFailpoints(text, log_path))


if armed := os.environ.get("GOBBLIN_FAILPOINT"):
    arm(armed, os.environ.get("GOBBLIN_FAILPOINT_LOG"))
