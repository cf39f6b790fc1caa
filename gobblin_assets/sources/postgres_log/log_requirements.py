"""Requirements on a server, a publication and a table whose log is followed: RejectedError says what to run."""

from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.jdbc.names import TableName
from gobblin_assets.sources.postgres_log.server_state import LogServerState, PublicationState, PublishedTable

VERSION_MIN: Final = 140_000


def require_server(
    server: LogServerState, publication: str, found: PublicationState | None, *, where: str
) -> PublicationState:
    """RejectedError for a server that can't give a change log, or lacks the publication. ``where``: the connection."""
    if server.version < VERSION_MIN:
        raise RejectedError(
            f"the server's version is {server.version // 10_000}; expected 14 or newer", field=f"{where}.url"
        )
    if server.is_standby:
        raise RejectedError(
            "the server is a standby, which gives no copy of a table that fits the log",
            field=f"{where}.url",
            hint="Name the primary.",
        )
    if server.wal_level != "logical":
        raise RejectedError(
            f"expected wal_level logical, found {server.wal_level}",
            field=f"{where}.url",
            hint="Run ALTER SYSTEM SET wal_level = logical, and restart the server; managed servers have a parameter "
            "for it, such as rds.logical_replication.",
        )
    if not server.may_replicate:
        raise RejectedError(
            "the user may not read replication slots",
            field=f"{where}.user",
            hint="Run ALTER ROLE … REPLICATION; managed servers have a role for it, such as rds_replication.",
        )
    return require_publication(publication, found)


def require_publication(publication: str, found: PublicationState | None) -> PublicationState:
    """RejectedError if the database has no such publication."""
    if found is None:
        raise RejectedError(
            f"the database has no publication {publication!r}",
            field="source.publication",
            hint=f"Run CREATE PUBLICATION {publication} FOR TABLE …, as the owner of the tables.",
        )
    return found


def require_table(
    urn: str, name: TableName, publication: str, found: PublicationState, *, is_followed: bool
) -> PublishedTable:
    """RejectedError for a table that the publication lacks, or whose updates can't be told apart.

    ``is_followed``: it was in the publication, and its copy is whole.
    """
    table = found.tables.get(name)
    field = f"datasets[{urn}].table"
    if table is None and is_followed:
        raise RejectedError(
            f"the publication {publication} has no table {name} any more: what is written to it comes into no log",
            field=field,
            hint=f"Take it out of the job. Or run ALTER PUBLICATION {publication} ADD TABLE {name}, and then copy it "
            f"again: gobblin-assets sink recopy JOB --dataset {urn}.",
        )
    if table is None:
        raise RejectedError(
            f"the publication {publication} has no table {name}",
            field=field,
            hint=f"Run ALTER PUBLICATION {publication} ADD TABLE {name}; or name one of "
            f"{', '.join(map(str, sorted(found.tables))) or 'its tables, of which there are none'}.",
        )
    changes = sorted(f"{each}s" for each in found.publishes & {"update", "delete"})
    if changes and not table.key and table.identity != "f":
        raise RejectedError(
            f"{name} has no replica identity, and {publication} publishes its {' and '.join(changes)}: "
            "Postgres refuses them",
            field=field,
            hint=f"Give it a primary key and run ALTER TABLE {name} REPLICA IDENTITY DEFAULT, or run "
            f"ALTER TABLE {name} REPLICA IDENTITY FULL.",
        )
    return table


def require_unhidden(table: PublishedTable, *, where: str) -> None:
    """RejectedError if a copy would lack rows that the log has. ``where``: the connection."""
    if table.look.is_secured:
        raise RejectedError(
            f"row level security hides rows of {table.name} from the user, and its log has the changes of all",
            field=f"{where}.user",
            hint="Run ALTER ROLE … BYPASSRLS.",
        )
