"""Dagster resources: configuration and one call into the engine. Nothing connects while definitions load."""

from collections.abc import Mapping

from gobblin_assets.dagster.ports import FILE_SYSTEMS_KEY, SPARK_KEY, STORES_KEY
from gobblin_assets.dagster.resources.connections import SourceConnectionResource, require_no_written_secret
from gobblin_assets.dagster.resources.filesystems import FileSystemsResource
from gobblin_assets.dagster.resources.jdbc import JdbcConnectionResource
from gobblin_assets.dagster.resources.kafka import KafkaConnectionResource
from gobblin_assets.dagster.resources.spark import GobblinSparkResource
from gobblin_assets.dagster.resources.stores import CommitStoreResource, supervise_embedded

__all__ = [
    "CommitStoreResource",
    "FileSystemsResource",
    "GobblinSparkResource",
    "JdbcConnectionResource",
    "KafkaConnectionResource",
    "SourceConnectionResource",
    "gobblin_resources",
]


def gobblin_resources(
    connections: Mapping[str, SourceConnectionResource],
    *,
    spark: GobblinSparkResource | None = None,
    stores: CommitStoreResource | None = None,
    file_systems: FileSystemsResource | None = None,
) -> dict[str, object]:
    """The resources that the jobs of a code location use, under the jobs' keys; ``connections`` under their names.

    Without ``spark``, sessions run inside the run's process, with the connectors that its job and the connections
    need. Without ``stores``, the log is where GOBBLIN_DATABASE_URL says, else in the embedded Postgres; this process
    then restarts that server if it dies. RejectedError for a password in the code.
    """
    supervise_embedded(stores or CommitStoreResource())
    for name, connection in connections.items():
        require_no_written_secret(name, connection)
    return {
        STORES_KEY: stores or CommitStoreResource(),
        FILE_SYSTEMS_KEY: file_systems or FileSystemsResource(),
        SPARK_KEY: spark or GobblinSparkResource(capabilities=_list_drivers(connections)),
        **connections,
    }


def _list_drivers(connections: Mapping[str, SourceConnectionResource]) -> list[str]:
    found = {"postgres"}
    for name, connection in connections.items():
        found.update(connection.list_capabilities(name))
    return sorted(found)
