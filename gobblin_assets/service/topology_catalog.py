"""The catalog of the topology: executors by their URIs, and the nodes that they reach.

A topology comes from a file, which nobody changes through the service, or from a store, which is changed. Either way
the whole topology is read when something of it changed, and everybody who hears of it gets the whole one.
"""

import datetime as dt
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.catalogs import CatalogMetrics
from gobblin_assets.service.flow_store import SpecNotFoundError
from gobblin_assets.service.topology import Topology, TopologySpec
from gobblin_assets.service.topology_file import read_topology_file

_log = logging.getLogger(__name__)


class TopologySource(Protocol):
    """The place that a topology is read from."""

    def find_change(self) -> object:
        """A value that differs after each change."""
        ...

    def read_topology(self) -> Topology:
        """RejectedError: what is there is no topology."""
        ...


class TopologyStore(TopologySource, Protocol):
    """A source that can be changed. Every write is durable when the call returns."""

    def put(self, kind: str, name: str, options: object) -> None:
        """Add or replace an executor or a node (``kind``), by options as in a file.

        RejectedError: they are no such options, or a node that has published would have another root or connection.
        """
        ...

    def remove(self, kind: str, name: str) -> bool:
        """False: there is none. RejectedError: an executor reaches the node, or a flow publishes to it."""
        ...


class TopologyListener(Protocol):
    """Hears of a topology that replaced the one before."""

    def on_topology(self, topology: Topology) -> None: ...


class FileTopology:
    """A topology in a file. It is read again when somebody changed the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def find_change(self) -> object:
        try:
            found = self._path.stat()
        except OSError as error:
            raise RejectedError(
                f"{self._path}: {error.strerror}", field="topology", hint="Name a file with nodes and executors."
            ) from None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def read_topology(self) -> Topology:
        return read_topology_file(self._path)


class TopologyCatalog:
    """A catalog of executors over a source. Its listeners hear in the order in which they came."""

    def __init__(
        self, source: TopologySource, now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
    ) -> None:
        self._source = source
        self._now = now
        # Held while listeners hear, so that all hear of topologies in one order.
        self._lock = threading.Lock()
        self._change = source.find_change()
        self._topology = source.read_topology()
        self._listeners: tuple[TopologyListener, ...] = ()
        self._metrics = CatalogMetrics(specs=len(self._topology.executors))

    @property
    def topology(self) -> Topology:
        return self._topology

    @property
    def metrics(self) -> CatalogMetrics:
        return self._metrics

    def add_listener(self, listener: TopologyListener) -> None:
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def get_specs(self) -> Sequence[TopologySpec]:
        return sorted(self._topology.executors.values(), key=lambda spec: spec.uri)

    def get_spec(self, uri: str) -> TopologySpec:
        found = next((spec for spec in self._topology.executors.values() if spec.uri == uri), None)
        if found is None:
            raise SpecNotFoundError(
                f"there is no executor {uri[:200]!a}", field="executor", hint="Look at the topology."
            )
        return found

    def refresh(self) -> bool:
        """Look whether the source changed, and tell the listeners. What is no topology leaves the last one in use.

        RetryableError: the source does not answer.
        """
        with self._lock:
            change = self._source.find_change()
            if change == self._change:
                return False
            try:
                topology = self._source.read_topology()
            except RejectedError as error:
                self._change = change
                _log.warning("the topology stays as it is: %s", error)
                return False
            self._change = change
            if topology.version == self._topology.version:
                return False
            self._take(topology)
            return True

    def _take(self, topology: Topology) -> None:
        before, self._topology = self._topology, topology
        gone = before.executors.keys() - topology.executors.keys()
        put = sum(before.executors.get(name) != spec for name, spec in topology.executors.items())
        failures = 0
        for listener in self._listeners:
            try:
                listener.on_topology(topology)
            except Exception:  # noqa: BLE001  whatever one listener does wrong, the others hear
                failures += 1
                _log.exception("a listener failed at the topology %s", topology.version)
        held = self._metrics
        self._metrics = replace(
            held,
            specs=len(topology.executors),
            puts=held.puts + put,
            removals=held.removals + len(gone),
            listener_failures=held.listener_failures + failures,
            changed_at=self._now(),
        )
