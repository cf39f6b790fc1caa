"""Starts and stops what a node of the service does beside its requests: it looks for changes, sends, reads reports."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.service.catalogs import CATALOG_LOOK_EVERY_S
from gobblin_assets.service.flow_catalog import FlowCatalog
from gobblin_assets.service.flow_manager import FlowManager
from gobblin_assets.service.launcher import Launcher
from gobblin_assets.service.monitor import Monitor
from gobblin_assets.service.orchestrator import Orchestrator
from gobblin_assets.service.roles import ALL_ROLES, NodeRole, find_place, takes_loop
from gobblin_assets.service.schedule_store import LAUNCHER
from gobblin_assets.service.scheduler import Scheduler
from gobblin_assets.service.specs import FlowSpec
from gobblin_assets.service.topology import Topology

FLOWS: Final = "flows"
MONITOR: Final = "monitor"

ORCHESTRATOR_LOOK_EVERY_S: Final = 0.5
MONITOR_LOOK_EVERY_S: Final = 0.5
PENDING_LOOK_EVERY_S: Final = 60.0
RESTARTS_LOOK_EVERY_S: Final = 1.0
SCHEDULER_LOOK_EVERY_S: Final = 0.5
LAUNCHER_LOOK_EVERY_S: Final = 0.5
REPORTS_REST_S: Final = 0.1
STOP_WAIT_S_MAX: Final = 30.0

_FAILED_WAIT_S_MAX: Final = 10.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loop:
    """What is done again and again, and at once when ``wake`` is set.

    ``look`` may raise: it is repeated, ever more slowly. ``rest_s``: a look that was woken comes so much later, and
    hears of all that came meanwhile.
    """

    name: str
    look: Callable[[], object]
    every_s: float
    rest_s: float = 0.0
    wake: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)


class _Woken:
    """Hears of flows that were stored, which may have something to send."""

    def __init__(self, wake: threading.Event) -> None:
        self._wake = wake

    def on_put(self, _spec: FlowSpec) -> None:
        self._wake.set()

    def on_removed(self, _uri: str) -> None:
        self._wake.set()


class CoreServices:
    """The loops of one node, each in a thread of its own.

    The orchestrator looks at once when a flow was stored, and pending flows and executions are compiled when the
    topology changed or a pack was published. A node of some ``roles`` has the loops of these, and those of the
    catalogs.

    Loops begin in the order of roles, behind the catalogs, and end the other way round: what is begun late is not
    stopped by the end of what it needs.
    """

    def __init__(
        self,
        catalog: FlowCatalog,
        flows: FlowManager,
        orchestrator: Orchestrator,
        monitor: Monitor,
        scheduler: Scheduler,
        launcher: Launcher,
        more: Sequence[Loop] = (),
        roles: Collection[NodeRole] = ALL_ROLES,
    ) -> None:
        self._catalog = catalog
        self._flows = flows
        self._stored = threading.Event()
        self._topology_changed = threading.Event()
        loops = (
            Loop(FLOWS, catalog.refresh, CATALOG_LOOK_EVERY_S),
            Loop("orchestrator", orchestrator.look, ORCHESTRATOR_LOOK_EVERY_S, wake=self._stored),
            Loop(MONITOR, self._read_reports, MONITOR_LOOK_EVERY_S, REPORTS_REST_S),
            Loop("restarts", flows.restart_drained, RESTARTS_LOOK_EVERY_S),
            Loop("pending flows", self._compile_pending, PENDING_LOOK_EVERY_S, wake=self._topology_changed),
            Loop("scheduler", scheduler.look, SCHEDULER_LOOK_EVERY_S),
            Loop(LAUNCHER, self._launch, LAUNCHER_LOOK_EVERY_S),
            *more,
        )
        self._loops = sorted(
            (loop for loop in loops if takes_loop(loop.name, roles)), key=lambda loop: find_place(loop.name)
        )
        self._monitor = monitor
        self._launcher = launcher
        self._threads = [
            threading.Thread(target=self._repeat, args=(loop,), name=loop.name, daemon=True) for loop in self._loops
        ]

    def start(self) -> None:
        """Read the flows, and begin. Raises RetryableError if the store is away."""
        self._catalog.refresh()
        self._catalog.listeners.add(_Woken(self._stored))
        for thread in self._threads:
            thread.start()

    def wake(self, name: str) -> None:
        """Have the loop of this name look now; "": all of them. The loop of a catalog has the catalog's name."""
        for loop in self._loops:
            if name in ("", loop.name):
                loop.wake.set()

    def hear_of_reports(self, _payload: str) -> None:
        self.wake(MONITOR)

    def _read_reports(self) -> None:
        # A job that has ended may be what the next one waits for.
        if self._monitor.look():
            self._stored.set()

    def _launch(self) -> None:
        if self._launcher.look():
            self._stored.set()

    def _compile_pending(self) -> None:
        self._flows.compile_pending()
        self._launcher.wake()
        self.wake(LAUNCHER)

    def on_topology(self, _topology: Topology) -> None:
        """Who changed it does not wait for pending flows. The compiler heard of it first."""
        self._topology_changed.set()

    def on_packs(self) -> None:
        """A template that a pending flow needs may be there now."""
        self._topology_changed.set()

    def stop(self, wait_s_max: float = STOP_WAIT_S_MAX) -> bool:
        """Let no write begin, wait for those under way, and end the loops. False: something is still under way."""
        is_quiet = self._flows.writes.close(wait_s_max)
        until = time.monotonic() + wait_s_max
        for loop, thread in zip(reversed(self._loops), reversed(self._threads), strict=True):
            loop.stopping.set()
            loop.wake.set()
            thread.join(max(0.0, until - time.monotonic()))
        return is_quiet and not any(thread.is_alive() for thread in self._threads)

    def _repeat(self, loop: Loop) -> None:
        wait_s = loop.every_s
        while not loop.stopping.is_set():
            try:
                loop.look()
                wait_s = loop.every_s
            except Exception:  # noqa: BLE001  a loop that ended would leave flows as they are, in silence
                wait_s = min(max(_FAILED_WAIT_S_MAX, loop.every_s), wait_s * 2)
                _log.exception("%s: failed; again in %.1f s", loop.name, wait_s)
            if loop.wake.wait(wait_s):
                loop.stopping.wait(loop.rest_s)
            loop.wake.clear()
