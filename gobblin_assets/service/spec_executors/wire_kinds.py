"""The kinds of ways to executors, by communication, and all ways of a topology by their names.

Executors of the communication "log" are reached by their log (``service.postgres.logs``). Every other communication is
one module with a function that opens a wire, and one line below.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gobblin_assets.errors import RejectedError
from gobblin_assets.extensions import Extensions
from gobblin_assets.model.job_ticket import LogId
from gobblin_assets.service.ticket_logs import TicketLogs, TicketWire
from gobblin_assets.service.topology import BY_LOG, ExecutorSpec, Topology, is_way_of_log
from gobblin_assets.state.log_drains import LogDrainStore
from gobblin_assets.state.overview import Overview


class OpenedWire(TicketWire, Protocol):
    """A wire with connections or threads of its own."""

    def close(self) -> None:
        """Let go of them. A call behind it may raise."""
        ...


@dataclass(frozen=True, slots=True)
class WayTo:
    """A way that is to be opened. ``own``: the engine of the service's database, which keeps what messages bring."""

    executor: ExecutorSpec
    own: Any
    environment: Mapping[str, str]


OpenWire = Callable[[WayTo], OpenedWire]
"""Opens a wire. Nothing is connected to: a way that is down raises at its first call. RejectedError: it has no address.
"""

WIRE_KINDS: Final = Extensions[OpenWire](
    group="gobblin_assets.spec_executors",
    noun="communication",
    option="communication",
    accepts=callable,
    built_in={
        "kafka": "gobblin_assets.service.spec_executors.simple_kafka:open_kafka_wire",
        "rest": "gobblin_assets.service.spec_executors.simple_rest:open_rest_wire",
    },
)


class ExecutorWires:
    """``TicketLogs`` over all communications. Each wire is opened when it is first needed.

    A wire whose executor was changed is opened anew; one whose executor has left the topology is closed.
    """

    def __init__(self, logs: TicketLogs, topology: Topology, own: Any, environment: Mapping[str, str]) -> None:
        self._logs = logs
        self._own = own
        self._environment = environment
        self._lock = threading.Lock()
        self._executors = _list_ways(topology)
        self._wires: dict[str, OpenedWire] = {}

    def on_topology(self, topology: Topology) -> None:
        ways = _list_ways(topology)
        with self._lock:
            stale = [way for way in self._wires if ways.get(way) != self._executors[way]]
            closing = [self._wires.pop(way) for way in stale]
            self._executors = ways
        for wire in closing:
            wire.close()

    def get_store(self, way: str) -> TicketWire:
        if is_way_of_log(way):
            return self._logs.get_store(way)
        with self._lock:
            found = self._wires.get(way)
            if found is None:
                executor = self._get_executor(way)
                opening = WIRE_KINDS.get(executor.communication)
                found = self._wires[way] = opening(WayTo(executor, self._own, self._environment))
            return found

    def get_log_id(self, way: str) -> LogId:
        if is_way_of_log(way):
            return self._logs.get_log_id(way)
        return self.get_store(way).find_log_id()

    def get_overview(self, way: str) -> Overview:
        if is_way_of_log(way):
            return self._logs.get_overview(way)
        with self._lock:
            log = self._get_executor(way).log
        return self._logs.get_overview(log)

    def get_drains(self, log: str) -> LogDrainStore:
        return self._logs.get_drains(log)

    def close(self) -> None:
        with self._lock:
            closing = list(self._wires.values())
            self._wires = {}
        for wire in closing:
            wire.close()

    def _get_executor(self, way: str) -> ExecutorSpec:
        found = self._executors.get(way)
        if found is None:
            raise RejectedError(
                f"the executor of the way {way[:200]!a} has left the topology",
                field="executor",
                hint="Put it back with its name and communication, or cancel what waits for it.",
            )
        return found


def _list_ways(topology: Topology) -> dict[str, ExecutorSpec]:
    """The executors that have ways of their own, by these."""
    found = [spec.executor for spec in topology.executors.values()]
    return {each.way: each for each in found if each.communication != BY_LOG}
