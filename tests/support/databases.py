"""The databases that the JDBC source is tested on, behind one interface: SQL goes in through their own drivers.

A test for all databases uses only the SQL that all of them know; ``WORDS`` has the words that differ.
"""

import itertools
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from gobblin_assets.sources.jdbc.connection import JdbcConnection, find_jdbc_database
from tests.support import mariadb, mysql

_numbers = itertools.count(1)

WORDS: Mapping[str, Mapping[str, str]] = {
    "postgres": {"text": "text", "moment": "timestamp(6)", "binary": "bytea", "instant": "timestamptz(6)"},
    "derby": {"text": "varchar(200)", "moment": "timestamp"},
    "mariadb": {"text": "varchar(200)", "moment": "datetime(6)", "instant": "timestamp(6) null"},
    "sqlite": {"text": "text", "moment": "datetime", "bigint": "integer"},
    "duckdb": {"text": "varchar", "moment": "timestamp", "instant": "timestamptz"},
    "h2": {"text": "varchar(200)", "moment": "timestamp(6)"},
}
"""Each database's names for the types of the contract."""


@dataclass(frozen=True, slots=True)
class Database:
    """Tables that are named without a schema are in ``schema``. ``kind``: whose SQL it takes; MySQL takes MariaDB's."""

    kind: str
    connection: JdbcConnection
    schema: str
    spark: SparkSession = field(repr=False)
    write_url: str
    write_properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def quote(self, name: str) -> str:
        mark = "`" if self.kind == "mariadb" else '"'
        return mark + name.replace(mark, mark * 2) + mark

    def folded(self, name: str) -> str:
        """The name that the database keeps for a name without quotes."""
        return name.upper() if self.kind in {"derby", "h2"} else name

    def literal(self, text: str) -> str:
        if self.kind == "mariadb":
            return f"CONVERT(X'{text.encode().hex()}' USING utf8mb4)"
        if self.kind == "postgres" and text.startswith("?"):
            # The driver also replaces parameters and escapes inside of quotes.
            return f"convert_from('\\x{text.encode().hex()}', 'UTF8')"
        return "'" + text.replace("'", "''") + "'"

    def set_zone(self) -> str:
        """A statement that sets the wall clock two hours east of UTC for later ones in the same ``execute``."""
        return "SET time_zone = '+02:00'" if self.kind == "mariadb" else "SET TimeZone = 'Etc/GMT-2'"

    def word(self, name: str) -> str:
        return WORDS[self.kind].get(name, name)

    def execute(self, *statements: str) -> None:
        """Run each statement by itself, in one connection that is closed again: DuckDB allows no second one."""
        connection = _open(self.spark, self.connection.driver_class, self.write_url, self.write_properties)
        try:
            statement = connection.createStatement()
            for text in statements:
                statement.execute(text)
            statement.close()
        finally:
            connection.close()


def open_database(name: str, spark: SparkSession, folder: Path, server: Any) -> Iterator[Database]:
    """An empty database of the kind; dropped when the generator goes on. ``server`` starts the server that it needs."""
    match name:
        case "postgres":
            found = server()
            properties = {"user": found.user, "password": found.password}
            connection = JdbcConnection(found.jdbc_url, found.user, found.password, name="c")
            yield Database(name, connection, "public", spark, found.jdbc_url, properties)
        case "mariadb-by-mariadb" | "mariadb-by-mysql":
            given = {"user": mariadb.USER, "password": mariadb.PASSWORD}
            yield from _open_schema(name.rpartition("-")[2], spark, server().address, mariadb.DATABASE, given)
        case "mysql":
            given = {"user": mysql.USER, "password": mysql.PASSWORD}
            yield from _open_schema("mysql", spark, server().address, mysql.DATABASE, given)
        case "sqlite":
            url = f"jdbc:sqlite:{folder / 'a b.db'}"
            yield Database(name, JdbcConnection(url, name="c"), "main", spark, url)
        case "duckdb":
            url = f"jdbc:duckdb:{folder / 'a b.duckdb'}"
            yield Database(name, JdbcConnection(url, name="c"), "main", spark, url)
        case "derby":
            url = f"jdbc:derby:memory:{uuid.uuid4().hex}"
            made = Database(name, JdbcConnection(url, name="c"), "APP", spark, f"{url};create=true")
            yield made
            try:
                _open(spark, made.connection.driver_class, f"{url};drop=true", {}).close()
            except Py4JJavaError as error:
                assert "dropped" in str(error)  # noqa: PT017  how Derby says that it did
        case _:
            url = f"jdbc:h2:mem:{uuid.uuid4().hex};DB_CLOSE_DELAY=-1"
            yield Database("h2", JdbcConnection(url, driver="org.h2.Driver", name="c"), "PUBLIC", spark, url)


def _open_schema(
    driver: str, spark: SparkSession, server: str, database: str, login: Mapping[str, str]
) -> Iterator[Database]:
    """A database of its own at a server whose address ends with another one."""
    schema = f"db{next(_numbers)}"
    address = server.replace(f"/{database}", f"/{schema}")
    connection = JdbcConnection(f"jdbc:{driver}://{address}", login["user"], login["password"], name="c")
    home = Database("mariadb", connection, schema, spark, f"jdbc:{driver}://{server}", login)
    home.execute(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4")
    yield Database("mariadb", connection, schema, spark, connection.url, login)
    home.execute(f"DROP DATABASE {schema}")


def _open(spark: SparkSession, driver_class: str, url: str, properties: Mapping[str, str]) -> Any:
    """A connection in the JVM, by Spark's own registry: DriverManager does not know the classes of Spark's jars."""
    jvm: Any = spark._jvm
    registry = jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry
    registry.register(driver_class)
    given = jvm.java.util.Properties()
    for key, value in properties.items():
        given.setProperty(key, value)
    return registry.get(driver_class).connect(url, given)


def driver_names() -> tuple[str, ...]:
    """The capabilities that a Spark session needs for all of them."""
    names = (find_jdbc_database(name) for name in ("postgresql", "mariadb", "mysql", "sqlite", "duckdb"))
    return tuple(driver.capability for driver in names if driver is not None and driver.capability)
