"""A service whose flows are really run: a shop in Postgres, a lake, and an executor, each a process of its own."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.server_process import run_guarded
from gobblin_assets.db.embedded import EmbeddedServer
from tests.support import postgres
from tests.support.database_pool import DatabasePool
from tests.support.postgres import Database
from tests.support.running_service import RunningService, prepare_database, run_service

ORDERS = 180
LAST_DAY = "2024-03-31"


@dataclass(frozen=True)
class ServiceShop:
    """``lake``: where flows publish to."""

    service: RunningService
    source: Database
    lake: Path


@contextmanager
def run_service_shop(server: EmbeddedServer, pool: DatabasePool, folder: Path) -> Iterator[ServiceShop]:
    """The table ``orders`` has two rows a day of the first quarter of 2024; ``customers`` has nine rows."""
    lake = folder / "lake"
    lake.mkdir()
    topology = {
        "nodes": {
            "shop": {"kind": "database", "connection": "shop", "description": "Orders and customers"},
            "lake": {"kind": "files", "root": str(lake), "description": "Datasets of files"},
            "island": {"kind": "files", "root": str(folder / "island")},
        },
        "executors": {"local": {"capabilities": ["ingest.jdbc", "distcp"], "nodes": ["shop", "lake"]}},
    }
    with ExitStack() as stack:
        source = postgres.describe_database(server, stack.enter_context(postgres.temporary_database(server)))
        _fill(source)
        url = server.url(stack.enter_context(postgres.migrated_database(server, pool)))
        prepare_database(url)
        service = stack.enter_context(run_service(folder, url, "--no-auth", topology=topology, pack={}))
        secrets = {
            "GOBBLIN_JDBC_SHOP_URL": source.jdbc_url,
            "GOBBLIN_JDBC_SHOP_USER": source.user,
            "GOBBLIN_JDBC_SHOP_PASSWORD": source.password,
        }
        command = [sys.executable, "-m", "gobblin_assets.cli", "executor", "serve", "--name", "local"]
        environment = {**service.environment, **secrets}
        stack.enter_context(run_guarded(command, folder / "executor.log", environment))
        yield ServiceShop(service, source, lake)


def _fill(source: Database) -> None:
    with source.connect() as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, at timestamptz NOT NULL, amount int)")
        connection.execute(
            "INSERT INTO orders SELECT n, timestamptz '2024-01-01Z' + n * interval '12 hours', n % 7"
            f" FROM generate_series(0, {ORDERS - 1}) n"
        )
        connection.execute("CREATE TABLE customers (id int PRIMARY KEY, name text)")
        connection.execute("INSERT INTO customers SELECT n, 'c' || n FROM generate_series(1, 9) n")
