"""The history of the schema ``gobblin_service``."""

from pathlib import Path
from typing import Final

from sqlalchemy import MetaData

from gobblin_assets.db.schema_history import SchemaHistory


def _load_service_metadata() -> MetaData:
    from gobblin_assets.service.postgres.tables import service_metadata  # noqa: PLC0415  only upgrades and comparisons

    return service_metadata


SERVICE_HISTORY: Final = SchemaHistory(
    "gobblin_service", Path(__file__).with_name("migrations"), int.from_bytes(b"gobserv"), _load_service_metadata
)
