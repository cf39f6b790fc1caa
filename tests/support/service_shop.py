"""A service whose flows are really run: a shop in Postgres, a lake, and an executor, each a process of its own."""

import datetime as dt
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
from tests.support.running_service import RunningService, run_own_service

DAYS = 5
ORDERS = 2 * DAYS


@dataclass(frozen=True)
class ServiceShop:
    """``lake``: where flows publish to; ``second``: where its datasets are copied to.

    ``start``: the day of the first orders; all their days are over.
    """

    service: RunningService
    lake: Path
    second: Path
    start: dt.date


@contextmanager
def run_service_shop(server: EmbeddedServer, pool: DatabasePool, folder: Path) -> Iterator[ServiceShop]:
    """The table ``orders`` has two rows for each of some days, and ``customers`` has nine rows."""
    lake = folder / "lake"
    lake.mkdir()
    topology = {
        "nodes": {
            "shop": {"kind": "database", "connection": "shop", "description": "Orders and customers"},
            "lake": {"kind": "files", "root": str(lake), "description": "Datasets of files"},
            "second": {"kind": "files", "root": str(folder / "second"), "description": "Copies"},
            "island": {"kind": "files", "root": str(folder / "island")},
        },
        "executors": {"local": {"capabilities": ["ingest.jdbc", "distcp"], "nodes": ["shop", "lake", "second"]}},
    }
    with ExitStack() as stack:
        source = postgres.describe_database(server, stack.enter_context(postgres.temporary_database(server)))
        start = dt.datetime.now(dt.UTC).date() - dt.timedelta(days=DAYS + 1)
        _fill(source, start)
        service = stack.enter_context(run_own_service(server, pool, folder, topology=topology, pack={}))
        secrets = {
            "GOBBLIN_JDBC_SHOP_URL": source.jdbc_url,
            "GOBBLIN_JDBC_SHOP_USER": source.user,
            "GOBBLIN_JDBC_SHOP_PASSWORD": source.password,
        }
        command = [sys.executable, "-m", "gobblin_assets.cli", "executor", "serve", "--name", "local"]
        environment = {**service.environment, **secrets}
        stack.enter_context(run_guarded(command, folder / "executor.log", environment))
        yield ServiceShop(service, lake, folder / "second", start)


def _fill(source: Database, start: dt.date) -> None:
    with source.connect() as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, at timestamptz NOT NULL, amount int)")
        connection.execute(
            "INSERT INTO orders SELECT n, %s::timestamptz + n * interval '12 hours', n %% 7"
            " FROM generate_series(0, %s) n",
            [dt.datetime.combine(start, dt.time(), dt.UTC), ORDERS - 1],
        )
        connection.execute("CREATE TABLE customers (id int PRIMARY KEY, name text)")
        connection.execute("INSERT INTO customers SELECT n, 'c' || n FROM generate_series(1, 9) n")
