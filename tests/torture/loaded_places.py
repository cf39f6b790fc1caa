"""Where the rows of a tortured sink go: tables of Postgres or Iceberg, or topics; what a stranger does to them."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pyiceberg.schema import Schema

from gobblin_assets.db import embedded
from gobblin_assets.destinations.iceberg.catalog_address import read_catalog_address
from gobblin_assets.destinations.iceberg.iceberg_tables import IcebergTables
from tests.support.iceberg_rows import CATALOG, find_table, iceberg_variables
from tests.support.kafka import delete_topics, make_topic, open_admin, read_all
from tests.support.kafka_rows import CONNECTION as OUT
from tests.support.kafka_rows import variables_for as kafka_variables
from tests.support.postgres import Database, describe_database
from tests.support.postgres_rows import CONNECTION, variables_for
from tests.support.producing import Facts
from tests.torture.server import Victim

SCHEMA: Final = "shop"
_DATABASE: Final = "warehouse"
_MARKS_SCHEMA: Final = "marks"
_MARKS_TOPIC: Final = "marks"
_AWAY: Final = "_away"
_COLUMNS: Final = ("kafka_partition", "kafka_offset", "number")
_PATIENCE: Final = "SET LOCAL lock_timeout = '2s'"
_SKIPPING: Final = """
    CREATE OR REPLACE FUNCTION shop.skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"""


class LoadedPlace(ABC):
    """``is_exact``: nobody can load between the look at what is there and its removal. ``marks_apart``: the marks may
    go while the rows stay.
    """

    into: Mapping[str, Any]
    is_exact = True
    marks_apart = True

    @abstractmethod
    def variables(self) -> Mapping[str, str]:
        """How a process reaches the place now."""

    @abstractmethod
    def rows(self, topic: str) -> Facts:
        """Those that are there, of the dataset; none if it is not there."""

    @abstractmethod
    def remove(self, topic: str, *, remake: bool) -> Facts:
        """What holds the dataset's rows is removed; returns the rows. ``remake``: an empty one takes its name."""

    @abstractmethod
    def remove_marks(self) -> None: ...


class PostgresPlace(LoadedPlace):
    """A database of the server that has the log as well."""

    into: Mapping[str, Any] = {
        "type": "postgres",
        "connection": CONNECTION,
        "tables_schema": SCHEMA,
        "marks_schema": _MARKS_SCHEMA,
    }

    def __init__(self, victim: Victim) -> None:
        self._victim = victim
        embedded.create_database(victim.server, _DATABASE)

    def variables(self) -> Mapping[str, str]:
        return variables_for(self._describe())

    def rows(self, topic: str) -> Facts:
        with self._victim.connect(_DATABASE) as session:
            if session.execute("SELECT to_regclass(%s)", [f"{SCHEMA}.{topic}"]).fetchone() == (None,):
                return Facts()
            return _select(session, topic)

    def remove(self, topic: str, *, remake: bool) -> Facts:
        with self._victim.connect(_DATABASE) as session, session.transaction():
            session.execute(_PATIENCE)
            session.execute(f"LOCK TABLE {SCHEMA}.{topic} IN ACCESS EXCLUSIVE MODE".encode())
            gone = _select(session, topic)
            if remake:
                session.execute(f"CREATE TABLE {SCHEMA}.{topic}_new (LIKE {SCHEMA}.{topic})".encode())
            session.execute(f"DROP TABLE {SCHEMA}.{topic}".encode())
            if remake:
                session.execute(f"ALTER TABLE {SCHEMA}.{topic}_new RENAME TO {topic}".encode())
        return gone

    def rename(self, topic: str) -> None:
        self._do(f"ALTER TABLE {SCHEMA}.{topic} RENAME TO {topic}{_AWAY}")

    def rename_back(self, topic: str) -> None:
        self._do(f"ALTER TABLE {SCHEMA}.{topic}{_AWAY} RENAME TO {topic}")

    def remove_renamed(self, topic: str) -> Facts:
        """Nobody has loaded into it since; returns the rows."""
        return self.remove(f"{topic}{_AWAY}", remake=False)

    def remove_marks(self) -> None:
        self._do(f"DROP SCHEMA {_MARKS_SCHEMA} CASCADE")

    def lock(self, topic: str, lasts_s: float) -> bool:
        return self._victim.lock_table(f"{SCHEMA}.{topic}", lasts_s, _DATABASE)

    def leave_rows_out(self, topic: str) -> None:
        when = "FOR EACH ROW WHEN (NEW.number % 5 = 0) EXECUTE FUNCTION shop.skip()"
        self._do(_SKIPPING, f"CREATE TRIGGER skip BEFORE INSERT ON {SCHEMA}.{topic} {when}")

    def take_all_rows(self, topic: str) -> None:
        self._do(f"DROP TRIGGER skip ON {SCHEMA}.{topic}")

    def _do(self, *statements: str) -> None:
        with self._victim.connect(_DATABASE) as session, session.transaction():
            session.execute(_PATIENCE)
            for statement in statements:
                session.execute(statement.encode())

    def _describe(self) -> Database:
        return describe_database(self._victim.server, _DATABASE)


class IcebergPlace(LoadedPlace):
    """Its catalog is a database of the server that has the log as well. Marks are in the tables."""

    into: Mapping[str, Any] = {
        "type": "iceberg",
        "connection": CATALOG,
        "namespace": SCHEMA,
    }
    marks_apart = False

    def __init__(self, victim: Victim, warehouse: Path) -> None:
        self._victim = victim
        self._warehouse = warehouse
        warehouse.mkdir()
        embedded.create_database(victim.server, _DATABASE)

    def variables(self) -> Mapping[str, str]:
        return iceberg_variables(describe_database(self._victim.server, _DATABASE), f"file://{self._warehouse}")

    def rows(self, topic: str) -> Facts:
        return self._read(topic)

    def remove(self, topic: str, *, remake: bool) -> Facts:
        """Under its new name nobody commits to it any more, so that what it has then is all that it had."""
        self.rename(topic)
        gone = self.remove_renamed(topic)
        if remake:
            self._with_catalog(lambda catalog: catalog.create_table((SCHEMA, topic), Schema()))
        return gone

    def rename(self, topic: str) -> None:
        self._with_catalog(lambda catalog: catalog.rename_table((SCHEMA, topic), (SCHEMA, f"{topic}{_AWAY}")))

    def rename_back(self, topic: str) -> None:
        self._with_catalog(lambda catalog: catalog.rename_table((SCHEMA, f"{topic}{_AWAY}"), (SCHEMA, topic)))

    def remove_renamed(self, topic: str) -> Facts:
        """As in ``PostgresPlace``."""
        gone = self._read(f"{topic}{_AWAY}")
        self._with_catalog(lambda catalog: catalog.drop_table((SCHEMA, f"{topic}{_AWAY}")))
        return gone

    def remove_marks(self) -> None:
        raise AssertionError("marks of Iceberg are in the tables")

    def _read(self, name: str) -> Facts:
        table = find_table(self.variables(), SCHEMA, name)
        if table is None or not table.schema().fields:
            return Facts()
        rows = table.scan(selected_fields=_COLUMNS).to_arrow().to_pylist()
        return Facts(tuple(row[column] for column in _COLUMNS) for row in rows)

    def _with_catalog(self, act: Callable[[Any], Any]) -> None:
        tables = IcebergTables(read_catalog_address(CATALOG, self.variables()))
        try:
            act(tables._open())
        finally:
            tables.close()


class KafkaPlace(LoadedPlace):
    """Topics of the broker that has the sources as well."""

    into: Mapping[str, Any] = {
        "type": "kafka",
        "connection": OUT,
        "topic": "clean.{dataset}",
        "key": ["number"],
        "marks_topic": _MARKS_TOPIC,
        "partitions": 2,
    }
    is_exact = False

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def variables(self) -> Mapping[str, str]:
        return kafka_variables(self._bootstrap)

    def rows(self, topic: str) -> Facts:
        name = _out(topic)
        if name not in open_admin(self._bootstrap).list_topics(timeout=30).topics:
            return Facts()
        found = (json.loads(each.value or b"") for each in read_all(self._bootstrap, name))
        return Facts(tuple(row[column] for column in _COLUMNS) for row in found)

    def remove(self, topic: str, *, remake: bool) -> Facts:
        gone = self.rows(topic)
        delete_topics(self._bootstrap, _out(topic))
        if remake:
            make_topic(self._bootstrap, _out(topic), 2)
        return gone

    def remove_marks(self) -> None:
        delete_topics(self._bootstrap, _MARKS_TOPIC)


def _out(topic: str) -> str:
    return f"clean.{topic}"


def _select(session: Any, topic: str) -> Facts:
    return Facts(session.execute(f"SELECT {', '.join(_COLUMNS)} FROM {SCHEMA}.{topic}".encode()).fetchall())
