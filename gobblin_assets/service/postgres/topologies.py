"""``TopologyStore`` in Postgres: the options of each node and executor, as a file would have them."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, text

from gobblin_assets.db.notices import Channel, notify
from gobblin_assets.db.statement_texts import to_jsonb
from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import RejectedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.service.topology import DataNode, Topology
from gobblin_assets.service.topology_file import read_topology

T = TypeVar("T")

TOPOLOGY_CATALOG: Final = "topology"

# Whoever writes waits here for the others: a topology is checked as a whole.
_LOCK = text("""
    INSERT INTO gobblin_service.catalog_change AS c (catalog, number) VALUES (:catalog, 0)
        ON CONFLICT (catalog) DO UPDATE SET number = c.number
""")

_RAISE = text("""
    UPDATE gobblin_service.catalog_change SET number = number + 1, changed_at = clock_timestamp()
     WHERE catalog = :catalog RETURNING number
""")

_NUMBER = text("SELECT number FROM gobblin_service.catalog_change WHERE catalog = :catalog")

_ENTRIES = text("SELECT kind, name, options FROM gobblin_service.topology_entry ORDER BY kind, name")

_PUT = text("""
    INSERT INTO gobblin_service.topology_entry (kind, name, options) VALUES (:kind, :name, CAST(:options AS jsonb))
        ON CONFLICT (kind, name) DO UPDATE SET options = excluded.options, changed_at = clock_timestamp()
""")

_REMOVE = text("DELETE FROM gobblin_service.topology_entry WHERE kind = :kind AND name = :name")

_USERS_OF = text("""
    SELECT DISTINCT f.flow_group || '/' || f.flow_name AS flow
      FROM gobblin_service.flow_job j JOIN gobblin_service.flow f USING (flow_id, generation)
     WHERE f.deleted_at IS NULL AND j.retired_at IS NULL AND :name IN (j.node, j.source_node)
     ORDER BY flow LIMIT 5
""")


class PostgresTopologyStore:
    """``TopologyStore`` over ``topology_entry``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def find_change(self) -> object:
        return self._do("look for a topology", lambda c: c.execute(_NUMBER, {"catalog": TOPOLOGY_CATALOG}).scalar())

    def read_topology(self) -> Topology:
        return self._do("read the topology", _read)

    def put(self, kind: str, name: str, options: object) -> None:
        def body(connection: Connection) -> None:
            connection.execute(_LOCK, {"catalog": TOPOLOGY_CATALOG})
            before = _read(connection).nodes.get(name)
            connection.execute(_PUT, {"kind": kind, "name": name, "options": to_jsonb(options)})
            after = _read(connection).nodes.get(name)
            if kind == "nodes" and before is not None and after is not None:
                _require_place(before, after)
            _raise_number(connection)

        self._do("change the topology", body, Failpoint.TOPOLOGY_STORED)

    def remove(self, kind: str, name: str) -> bool:
        found: list[bool] = []

        def body(connection: Connection) -> bool:
            connection.execute(_LOCK, {"catalog": TOPOLOGY_CATALOG})
            if kind == "nodes" and (flows := connection.execute(_USERS_OF, {"name": name}).scalars().all()):
                raise RejectedError(
                    f"flows publish from it or to it: {', '.join(flows)}",
                    field=f"nodes.{name}",
                    hint="Delete them first.",
                )
            if not connection.execute(_REMOVE, {"kind": kind, "name": name}).rowcount:
                # A repetition finds its own work done.
                return bool(found)
            _read(connection)
            _raise_number(connection)
            found[:] = [True]
            return True

        return self._do("change the topology", body, Failpoint.TOPOLOGY_STORED)

    def _do(self, name: str, body: Callable[[Connection], T], committed: Failpoint | None = None) -> T:
        return transact(self._engine, name, body, committed=committed)


def _raise_number(connection: Connection) -> None:
    connection.execute(_RAISE, {"catalog": TOPOLOGY_CATALOG})
    notify(connection, Channel.CATALOGS, TOPOLOGY_CATALOG)


def _read(connection: Connection) -> Topology:
    """RejectedError: the entries do not fit together."""
    entries: dict[str, dict[str, Any]] = {"nodes": {}, "executors": {}}
    for row in connection.execute(_ENTRIES):
        entries[row.kind][row.name] = row.options
    return read_topology(entries)


def _require_place(before: DataNode, after: DataNode) -> None:
    for option in ("root", "connection", "kind"):
        was, now = getattr(before, option), getattr(after, option)
        if was != now:
            raise RejectedError(
                f"it is {was} for ever, not {now}: what was published stays where it is",
                field=f"nodes.{before.name}.{option}",
                hint="Add another node.",
            )
