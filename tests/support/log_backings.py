"""What is behind the stores of a commit log, for facts that their ports do not show."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sqlalchemy import DateTime, Engine, text

from gobblin_assets.commit.postgres.arguments import watermark_to_jsonb
from gobblin_assets.db.tables import metadata
from gobblin_assets.model.state import DatasetId, LaneId
from gobblin_assets.model.watermark import long_watermark
from tests.simulation.database import SimDatabase


class Backing(Protocol):
    """The implementation behind the ports, for facts that the ports do not show."""

    def advance(self, seconds: float) -> None: ...

    def digest(self) -> str:
        """Equal as long as no row has changed."""
        ...

    def list_rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]: ...

    def set_version(self, lane_id: LaneId, version: int) -> None:
        """Write a value that no method of the ports would write."""
        ...

    def set_watermark(self, dataset_id: DatasetId, watermark: int) -> None:
        """Write another position of the key "id", which no method of the ports would write."""
        ...


@dataclass(frozen=True, slots=True)
class SimBacking:
    db: SimDatabase

    def advance(self, seconds: float) -> None:
        self.db.advance(seconds)

    def digest(self) -> str:
        return self.db.fingerprint()

    def list_rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        name = table if table == "ledger" else f"{table}s"
        rows = getattr(self.db, name).values()
        return sorted((tuple(_plain(getattr(row, column)) for column in columns) for row in rows), key=repr)

    def set_version(self, lane_id: LaneId, version: int) -> None:
        self.db.lanes.put(lane_id, replace(self.db.lanes[lane_id], version=version))

    def set_watermark(self, dataset_id: DatasetId, watermark: int) -> None:
        (key,) = [key for key in self.db.keys.values() if (key.dataset_id, key.name) == (dataset_id, "id")]
        self.db.keys.put(key.key_id, replace(key, watermark=long_watermark(watermark)))


@dataclass(frozen=True, slots=True)
class PostgresBacking:
    engine: Engine

    def advance(self, seconds: float) -> None:
        """Make all recorded times older, since the server's clock can't be moved."""
        with self.engine.begin() as connection:
            for table in metadata.sorted_tables:
                moments = [column.name for column in table.columns if isinstance(column.type, DateTime)]
                if moments:
                    changes = ", ".join(f"{name} = {name} - make_interval(secs => :seconds)" for name in moments)
                    connection.execute(text(f"UPDATE {table.fullname} SET {changes}"), {"seconds": seconds})

    def digest(self) -> str:
        digest = hashlib.sha256()
        with self.engine.connect() as connection:
            for table in metadata.sorted_tables:
                rows = connection.execute(text(f"SELECT t::text FROM {table.fullname} t ORDER BY 1")).scalars()
                digest.update("\n".join((table.fullname, *rows)).encode())
        return digest.hexdigest()

    def list_rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            rows = connection.execute(text(f"SELECT {', '.join(columns)} FROM gobblin.{table}")).all()
        return sorted((tuple(row) for row in rows), key=repr)

    def set_version(self, lane_id: LaneId, version: int) -> None:
        arguments = {"lane_id": lane_id, "version": version}
        with self.engine.begin() as connection:
            statement = "UPDATE gobblin.lane SET version = :version WHERE lane_id = :lane_id"
            connection.execute(text(statement), arguments)

    def set_watermark(self, dataset_id: DatasetId, watermark: int) -> None:
        there = long_watermark(watermark)
        arguments = {"dataset_id": dataset_id, "json": watermark_to_jsonb(there), "bytes": there.encode()}
        statement = """
            UPDATE gobblin.watermark_key SET watermark = CAST(:json AS jsonb), watermark_bytes = :bytes
             WHERE dataset_id = :dataset_id AND name = 'id'
        """
        with self.engine.begin() as connection:
            connection.execute(text(statement), arguments)


def _plain(value: object) -> object:
    return str(value) if isinstance(value, str) else value
