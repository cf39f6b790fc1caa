"""Dagster resources: configuration and one call into the engine. Nothing connects while definitions load."""

from collections.abc import Mapping, Sequence

from gobblin_assets.dagster.own_runs import GobblinResource
from gobblin_assets.dagster.ports import FILE_SYSTEMS_KEY, GOBBLIN_KEY, SPARK_KEY, STORES_KEY, key_of_kind
from gobblin_assets.dagster.resources.connections import SourceConnectionResource, require_no_written_secret
from gobblin_assets.dagster.resources.kinds import JdbcConnectionResource, KafkaConnectionResource
from gobblin_assets.dagster.resources.spark import GobblinSparkResource
from gobblin_assets.dagster.resources.stores import CommitStoreResource, FileSystemsResource, supervise_embedded
from gobblin_assets.errors import RejectedError

__all__ = [
    "CommitStoreResource",
    "FileSystemsResource",
    "GobblinResource",
    "GobblinSparkResource",
    "JdbcConnectionResource",
    "KafkaConnectionResource",
    "SourceConnectionResource",
    "gobblin_resources",
]


def gobblin_resources(
    connections: Mapping[str, SourceConnectionResource | Sequence[SourceConnectionResource]],
    *,
    spark: GobblinSparkResource | None = None,
    stores: CommitStoreResource | None = None,
    file_systems: FileSystemsResource | None = None,
) -> dict[str, object]:
    """The resources that the jobs of a code location use, under the jobs' keys.

    ``connections``: by the name that jobs give it, a connection, or several of different kinds: ``{"shop": [tables,
    topics]}``. The key of each has its kind and its name, such as ``jdbc__shop``.
    Without ``spark``, sessions run inside the run's process, with the connectors that its job and the connections
    need. Without ``stores``, the log is where GOBBLIN_DATABASE_URL says, else in the embedded Postgres; this process
    then restarts that server if it dies. RejectedError for a password in the code, and for two connections of one
    name and one kind.
    """
    supervise_embedded(stores or CommitStoreResource())
    named = _list_named(connections)
    for name, connection in named:
        require_no_written_secret(name, connection)
    return {
        GOBBLIN_KEY: GobblinResource(),
        STORES_KEY: stores or CommitStoreResource(),
        FILE_SYSTEMS_KEY: file_systems or FileSystemsResource(),
        SPARK_KEY: spark or GobblinSparkResource(capabilities=_list_drivers(named)),
        **{key_of_kind(connection.KIND, name): connection for name, connection in named},
    }


def _list_named(
    connections: Mapping[str, SourceConnectionResource | Sequence[SourceConnectionResource]],
) -> list[tuple[str, SourceConnectionResource]]:
    """Each connection with its name. RejectedError for a second one of a kind."""
    named: list[tuple[str, SourceConnectionResource]] = []
    for name, given in connections.items():
        of_name = [given] if isinstance(given, SourceConnectionResource) else list(given)
        kinds = [connection.KIND for connection in of_name]
        if len(set(kinds)) < len(kinds):
            raise RejectedError(
                f"expected connections of different kinds, found {' and '.join(kinds)}",
                field=f"connections[{name}]",
                hint="Give one of each kind, and another name to the others.",
            )
        named += [(name, connection) for connection in of_name]
    return named


def _list_drivers(connections: Sequence[tuple[str, SourceConnectionResource]]) -> list[str]:
    found = {"postgres"}
    for name, connection in connections:
        found.update(connection.list_capabilities(name))
    return sorted(found)
