"""The history of the schema ``gobblin_service``."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from sqlalchemy import Engine, MetaData

from gobblin_assets.db import schema
from gobblin_assets.db.schema_history import SchemaHistory


def _load_service_metadata() -> MetaData:
    from gobblin_assets.service.postgres.tables import service_metadata  # noqa: PLC0415  only upgrades and comparisons

    return service_metadata


SERVICE_HISTORY: Final = SchemaHistory(
    "gobblin_service", Path(__file__).with_name("migrations"), int.from_bytes(b"gobserv"), _load_service_metadata
)


def prepare_schema(engine: Engine, say: Callable[[str], None], *, upgrades: bool) -> None:
    """Upgrade the schema, or only look whether this code can use it. The schema may be one version ahead.

    Nodes of this release run beside those of the next one, whose migrations only add.

    Raises:
        RejectedError: the schema is of another version, or the role may not create it.
        RetryableError: the server does not answer.

    """
    status = schema.read_version(engine, SERVICE_HISTORY)
    if schema.is_next(status):
        say(
            f"The schema {SERVICE_HISTORY.schema!r} is at version {status.current}, the next one after this package's"
            f" {status.head}: upgrade the package."
        )
    elif upgrades:
        schema.upgrade(engine, say, SERVICE_HISTORY)
    elif status.relation is not schema.SchemaRelation.CURRENT:
        raise schema.refusal(status, SERVICE_HISTORY)
