"""The shop's database: a Postgres of its own with wal_level=logical, its tables, and the role that may follow them."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from demo.cdc.places import SLOT, SOURCE_HOME
from demo.logical_cluster import start_logical
from demo.stage import console
from gobblin_assets.db.embedded import EmbeddedServer, create_database
from gobblin_assets.db.libpq import neutral_parameters

ROLE: Final = "lake"
LATE_TABLE: Final = "reviews"
TABLES: Final = ("customers", "orders", "order_items", LATE_TABLE)

_DATABASE: Final = "shop"
_LATE_ROWS_PART: Final = 50

_SCHEMA: Final = """
    CREATE TABLE customers (customer_id bigint PRIMARY KEY, name text NOT NULL, city text, notes text);
    ALTER TABLE customers ALTER COLUMN notes SET STORAGE EXTERNAL;
    CREATE TABLE orders (
        order_id bigint PRIMARY KEY, customer_id bigint NOT NULL, status text NOT NULL, total numeric(12, 2),
        ordered_at timestamptz NOT NULL);
    CREATE TABLE order_items (
        order_id bigint, line int, product text NOT NULL, quantity int NOT NULL, price numeric(9, 2) NOT NULL,
        PRIMARY KEY (order_id, line));
"""
_LOAD: Final = """
    INSERT INTO customers
    SELECT n, 'customer ' || n, 'city ' || n % 97, CASE WHEN n % 10 = 0 THEN repeat('note ' || n || ' ', 300) END
      FROM generate_series(0, %(customers)s - 1) n;
    INSERT INTO orders
    SELECT n, n % %(customers)s, 'paid', (n % 9973) / 7.0, timestamptz '2026-01-01' + n * interval '1 second'
      FROM generate_series(0, %(orders)s - 1) n;
    INSERT INTO order_items
    SELECT n, line, 'product ' || (n * 7 + line) % 499, 1 + n % 5, ((n + line) % 10007) / 9.0
      FROM generate_series(0, %(orders)s - 1) n, generate_series(1, 2) line;
"""
# As a database's owner would set it up; docs/CHANGES.md says the same.
_FOLLOW: Final = """
    CREATE ROLE lake LOGIN REPLICATION PASSWORD {password};
    GRANT SELECT ON ALL TABLES IN SCHEMA public TO lake;
    ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO lake;
    CREATE PUBLICATION lake FOR TABLE customers, orders, order_items;
"""
_MAKE_LATE: Final = (
    "CREATE TABLE reviews (order_id bigint, stars int, body text)",
    "ALTER TABLE reviews REPLICA IDENTITY FULL",
)
_LOAD_LATE: Final = "INSERT INTO reviews SELECT n, 1 + n % 5, 'as described' FROM generate_series(0, {rows} - 1) n"
_PUBLISH_LATE: Final = "ALTER PUBLICATION lake ADD TABLE reviews"
_ADD_COLUMN: Final = "ALTER TABLE orders ADD COLUMN channel text"


@dataclass(frozen=True, slots=True)
class LogEnd:
    """``end``: of the server's log. ``kept_bytes``: of it, kept for the slot; None without a slot."""

    end: int
    kept_bytes: int | None


@dataclass(frozen=True, slots=True)
class ShopDatabase:
    """``rows``: with which it began."""

    server: EmbeddedServer
    rows: int
    role_password: str

    @property
    def url(self) -> str:
        return self.server.jdbc_url(_DATABASE)

    @property
    def customers(self) -> int:
        return self.rows // 10

    @property
    def orders(self) -> int:
        return 3 * self.customers

    @contextmanager
    def connect(self, *, autocommit: bool = False) -> "Iterator[psycopg.Connection[Any]]":
        """As the tables' owner. Times come in UTC."""
        server = self.server
        given = {
            "host": str(server.socket_directory),
            "port": str(server.port),
            "user": server.user,
            "passfile": str(server.password_file),
            "dbname": _DATABASE,
            "options": "-c TimeZone=UTC",
        }
        with psycopg.connect(make_conninfo(**given, **neutral_parameters(given)), autocommit=autocommit) as connection:
            yield connection

    def count_rows(self) -> dict[str, int]:
        with self.connect() as connection:
            return {
                table: int(_one(connection, f"SELECT count(*) FROM {table}")[0])
                for table in TABLES
                if _one(connection, f"SELECT to_regclass('{table}') IS NOT NULL")[0]
            }

    def look_at_log(self) -> LogEnd:
        with self.connect(autocommit=True) as connection:
            (end,) = _one(connection, "SELECT pg_current_wal_flush_lsn() - '0/0'")
            row = connection.execute(
                "SELECT pg_current_wal_lsn() - restart_lsn FROM pg_replication_slots WHERE slot_name = %s", [SLOT]
            ).fetchone()
        return LogEnd(int(end), None if row is None or row[0] is None else int(row[0]))

    def add_late_table(self) -> None:
        """The table is there, and has rows, before the publication has it."""
        for statement in (*_MAKE_LATE, _LOAD_LATE.format(rows=self.rows // _LATE_ROWS_PART), _PUBLISH_LATE):
            self._do(statement)

    def add_column(self) -> None:
        self._do(_ADD_COLUMN)

    def make_last_change(self) -> int:
        """One more transaction, and a place of the log before its end: what is published up to there is everything."""
        end = self.look_at_log().end
        with self.connect(autocommit=True) as connection:
            connection.execute("UPDATE customers SET city = 'the end' WHERE customer_id = 0")
        return end

    def _do(self, statement: str) -> None:
        console.print(f"[cyan]shop=# {statement};[/cyan]")
        with self.connect(autocommit=True) as connection:
            connection.execute(statement.encode())


def start_shop(rows: int) -> ShopDatabase:
    """A new cluster, with the shop's tables of about so many rows in all."""
    server = start_logical(SOURCE_HOME)
    create_database(server, _DATABASE)
    shop = ShopDatabase(server, rows, secrets.token_urlsafe(16))
    with shop.connect() as connection:
        connection.execute(_SCHEMA)
        connection.execute(_LOAD.replace("%(customers)s", str(shop.customers)).replace("%(orders)s", str(shop.orders)))
        connection.execute(sql.SQL(_FOLLOW).format(password=sql.Literal(shop.role_password)))
    return shop


def _one(connection: "psycopg.Connection[Any]", statement: str) -> tuple[Any, ...]:
    row = connection.execute(statement.encode()).fetchone()
    if row is None:
        raise SystemExit(f"Nothing came of {statement}")
    return tuple(row)
