"""Manages the topology: requests that read or change executors and nodes."""

from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.open_writes import OpenWrites
from gobblin_assets.service.topology import DataNode, Topology, TopologySpec, topology_uri
from gobblin_assets.service.topology_catalog import TopologyCatalog, TopologyStore

NODES: Final = "nodes"
EXECUTORS: Final = "executors"


class TopologyManager:
    """The host of a TopologyCatalog. ``store`` None: the topology comes from a file, and is changed there."""

    def __init__(self, catalog: TopologyCatalog, store: TopologyStore | None, writes: OpenWrites) -> None:
        self._catalog = catalog
        self._store = store
        self._writes = writes

    @property
    def topology(self) -> Topology:
        return self._catalog.topology

    def get_executor(self, name: str) -> TopologySpec:
        """SpecNotFoundError: there is none."""
        return self._catalog.get_spec(topology_uri(name))

    def put_node(self, name: str, options: object) -> DataNode:
        """Add or replace a node, by options as in a file. RejectedError names the option and the fix."""
        self._put(NODES, name, options)
        return self.topology.nodes[name]

    def put_executor(self, name: str, options: object) -> TopologySpec:
        """Add or replace an executor, by options as in a file. RejectedError names the option and the fix."""
        self._put(EXECUTORS, name, options)
        return self.get_executor(name)

    def remove_node(self, name: str) -> bool:
        """False: there is none. RejectedError: it is in use."""
        return self._remove(NODES, name)

    def remove_executor(self, name: str) -> bool:
        """False: there is none. Tickets that it was sent stay its own."""
        return self._remove(EXECUTORS, name)

    def _put(self, kind: str, name: str, options: object) -> None:
        with self._writes.open():
            self._get_store().put(kind, name, options)
            self._catalog.refresh()

    def _remove(self, kind: str, name: str) -> bool:
        with self._writes.open():
            is_removed = self._get_store().remove(kind, name)
            self._catalog.refresh()
            return is_removed

    def _get_store(self) -> TopologyStore:
        if self._store is None:
            raise RejectedError(
                "the topology of this service is in a file",
                field="topology",
                hint="Change the file: the service takes it over within seconds.",
            )
        return self._store
