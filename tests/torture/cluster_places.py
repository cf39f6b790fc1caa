"""What a cluster under torture moves: tables, a change log and a topic, lakes, tables of Postgres and of Iceberg."""

import json
import random
import shutil
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg
from confluent_kafka import Producer
from sqlalchemy import make_url

from demo.kafka.broker import KafkaBroker
from gobblin_assets.db.embedded import EmbeddedServer
from tests.support import postgres
from tests.support.cutting_proxy import CuttingProxy, cutting_proxy
from tests.support.database_pool import DatabasePool
from tests.support.iceberg_rows import CATALOG, iceberg_variables
from tests.support.kafka import make_topic
from tests.support.postgres import Database, describe_database
from tests.support.running_service import prepare_database

GROUP: Final = "torture"
TOPIC: Final = "visits"
NAMESPACE: Final = "shop"
PUBLICATION: Final = "lake"
SEED_ROWS: Final = 5

NODES: Final = "nodes"
OFFICE: Final = "office"
WAREHOUSE: Final = "warehouse"
AIRPORT: Final = "airport"
SOURCE: Final = "source"

_PARTITIONS: Final = 3
_DELIVERY_S_MAX: Final = 180
_TABLES: Final = """
    CREATE TABLE orders (id BIGINT PRIMARY KEY, amount BIGINT NOT NULL);
    CREATE TABLE customers (id BIGINT PRIMARY KEY, name TEXT NOT NULL);
    CREATE TABLE items (id BIGINT PRIMARY KEY, amount BIGINT NOT NULL);
    CREATE TABLE loads (id BIGINT PRIMARY KEY, amount BIGINT NOT NULL);
    CREATE TABLE accounts (id BIGINT PRIMARY KEY, amount BIGINT NOT NULL);
    CREATE PUBLICATION lake FOR TABLE accounts;
"""


@dataclass
class ClusterPlaces:
    """``proxies``: before the Postgres of the logs, by who reaches it; SOURCE before that of the tables.

    ``own_log``: the database of the service, which also is a log; ``far_log``: the log that the service does not reach.
    """

    folder: Path
    server: EmbeddedServer
    source: Database
    shelf: Database
    catalog: Database
    own_log: str
    far_log: str
    dagster_databases: Mapping[str, str]
    proxies: Mapping[str, CuttingProxy]
    broker: KafkaBroker

    def url(self, database: str, by: str | None = None) -> str:
        """Of a database of the logs' server. ``by``: whose proxy it goes over."""
        made = make_url(self.server.tcp_url(database))
        if by is not None:
            made = made.set(host="127.0.0.1", port=self.proxies[by].port)
        return made.render_as_string(hide_password=False)

    def place(self, name: str) -> Path:
        return self.folder / name

    def variables(self, by: str) -> dict[str, str]:
        """Of an executor."""
        source_port = self.proxies[SOURCE].port
        proxied = f"jdbc:postgresql://127.0.0.1:{source_port}/{self.source.database}"
        found: dict[str, str] = {}
        for prefix, url, database in (
            ("GOBBLIN_JDBC_SHOP", proxied, self.source),
            ("GOBBLIN_POSTGRES_LOG_SHOP", proxied, self.source),
            ("GOBBLIN_JDBC_SHELF", self.shelf.jdbc_url, self.shelf),
        ):
            found |= {f"{prefix}_URL": url, f"{prefix}_USER": database.user, f"{prefix}_PASSWORD": database.password}
        found |= iceberg_variables(self.catalog, f"file://{self.place('iceberg')}")
        own = self.far_log if by == AIRPORT else self.own_log
        return {
            **found,
            **self.broker_variables,
            "GOBBLIN_DATABASE_URL": self.url(own, by),
            "GOBBLIN_HOME": str(self.place(f"home-{by}")),
            "GOBBLIN_JOBS": "",
        }

    @property
    def broker_variables(self) -> dict[str, str]:
        return {"GOBBLIN_KAFKA_MAIN_BOOTSTRAP_SERVERS": self.broker.bootstrap}


def open_places(
    stack: ExitStack, server: EmbeddedServer, pool: DatabasePool, source: Database, broker: KafkaBroker
) -> ClusterPlaces:
    folder = postgres.make_reachable_directory("gobblin-cluster-")
    stack.callback(shutil.rmtree, folder, ignore_errors=True)

    def make() -> str:
        return stack.enter_context(postgres.temporary_database(server))

    own_log, far_log = (stack.enter_context(postgres.migrated_database(server, pool)) for _ in range(2))
    prepare_database(server.tcp_url(own_log))
    proxies = {name: stack.enter_context(cutting_proxy(server.port)) for name in (NODES, OFFICE, WAREHOUSE, AIRPORT)}
    proxies[SOURCE] = stack.enter_context(cutting_proxy(source.port))
    with source.connect() as connection:
        connection.execute(_TABLES)
    make_topic(broker.bootstrap, TOPIC, _PARTITIONS)
    shelf, catalog = (describe_database(server, make()) for _ in range(2))
    for name in (
        "lake",
        "far-lake",
        "mirror",
        "staging",
        "iceberg",
        *(f"home-{each}" for each in (OFFICE, WAREHOUSE, AIRPORT)),
    ):
        (folder / name).mkdir()
    dagster = {name: make() for name in (WAREHOUSE, AIRPORT)}
    return ClusterPlaces(folder, server, source, shelf, catalog, own_log, far_log, dagster, proxies, broker)


@dataclass
class SourceWriter:
    """Writes to all sources until it is stopped. What was sent to the topic is what the topic has in the end."""

    places: ClusterPlaces
    seed: str
    rest_s: float = 0.5
    _stop: threading.Event = field(default_factory=threading.Event)
    _failures: list[BaseException] = field(default_factory=list)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._feed, name="feeder", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Return when all is written. May be called again."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_DELIVERY_S_MAX + 30)
            assert not self._thread.is_alive(), "the feeder does not end"
        if self._failures:
            raise self._failures[0]

    def _feed(self) -> None:
        chance = random.Random(f"{self.seed}/feeder")
        try:
            producer = Producer({
                "bootstrap.servers": self.places.broker.bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": _DELIVERY_S_MAX * 1000,
                "log_level": 0,
            })  # fmt: skip
            with self.places.source.connect() as connection:
                number = 1
                while number <= SEED_ROWS or not self._stop.wait(self.rest_s):
                    self._write(connection, chance, number)
                    record = json.dumps({"id": number, "amount": chance.randrange(100)})
                    producer.produce(TOPIC, record.encode(), str(number).encode())
                    producer.poll(0)
                    number += 1
            assert not producer.flush(_DELIVERY_S_MAX), "records were not delivered"
        except BaseException as error:  # noqa: BLE001  the test's thread raises it
            self._failures.append(error)

    def _write(self, connection: "psycopg.Connection[tuple[object, ...]]", chance: random.Random, number: int) -> None:
        values = (number, chance.randrange(1000))
        for table in ("orders", "items", "loads", "accounts"):
            connection.execute(f"INSERT INTO {table} VALUES (%s, %s)".encode(), values)
        if number % 3 == 0:
            connection.execute("INSERT INTO customers VALUES (%s, %s)", (number, f"c{number}"))
            connection.execute("UPDATE customers SET name = name || '+' WHERE id = %s", (chance.randrange(1, number),))
        if number % 2 == 0:
            connection.execute("UPDATE accounts SET amount = amount + 1 WHERE id = %s", (chance.randrange(1, number),))
        if number % 7 == 0:
            connection.execute("DELETE FROM accounts WHERE id = %s", (chance.randrange(1, number),))


def make_topology(places: ClusterPlaces, executors: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    files = {"lake": "lake", "mirror": "mirror", "far_lake": "far-lake"}
    return {
        "nodes": {
            "shop": {"kind": "database", "connection": "shop"},
            "shop_log": {"kind": "change_log", "connection": "shop"},
            "main": {"kind": "cluster", "connection": "main", "root": str(places.place("staging") / "main")},
            "shelf": {"kind": "tables", "connection": "shelf", "root": str(places.place("staging") / "shelf")},
            "iceberg": {"kind": "iceberg", "connection": CATALOG, "root": str(places.place("staging") / "iceberg")},
            **{name: {"kind": "files", "root": str(places.place(folder))} for name, folder in files.items()},
        },
        "executors": dict(executors),
    }


def make_flow(name: str, source: str, destination: str, **more: Any) -> dict[str, Any]:
    return {"flow_group": GROUP, "flow_name": name, "source": source, "destinations": [destination], **more}


def dataset_of(table: str, *, grows: bool = True) -> dict[str, Any]:
    made: dict[str, Any] = {"table": f"public.{table}", "primary_key": ["id"]}
    return {**made, "watermark_column": "id"} if grows else made
