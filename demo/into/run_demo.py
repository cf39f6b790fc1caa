"""Rows are loaded into tables of Postgres, a topic and a table of Iceberg; a run of each is killed; the proof.

Each demo starts from nothing: it first removes what an earlier one left below .demo-into. No server outlives it, and no
Spark starts.
"""

import os
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from psycopg import sql
from rich.table import Table

from demo.flights_source import connect_source, let_arrive, load_source
from demo.into.loaded_rows import read_iceberg, read_topic
from demo.kafka.broker import COORDINATES, start_broker
from demo.kafka.jars import resolve_jars
from demo.kafka.places import quicken_java
from demo.places import CLONE, SOURCE_DATABASE
from demo.stage import act, command, console, killed_command, say_counts
from gobblin_assets.db import embedded
from gobblin_assets.db.embedded import EmbeddedServer, create_database
from gobblin_assets.settings import forget_unasked_variables

DEMO: Final = CLONE / ".demo-into"
HOME: Final = DEMO / "home"
WAREHOUSE: Final = DEMO / "warehouse"
JOBS: Final = {
    "flights_to_tables": "load_before_commit=kill",
    "weather_to_topic": "load_committed=kill",
    "weather_to_iceberg": "step_after=kill",
}
"""Where the second run of each job is killed: inside of its transaction, and behind it."""

_FOREIGN: Final = ("DAGSTER_HOME", "GOBBLIN_DATABASE_URL", "GOBBLIN_SPARK_REMOTE", "GOBBLIN_SPARK_MASTER")


def main() -> int:
    begun = time.monotonic()
    os.chdir(CLONE)
    forget_unasked_variables(os.environ)
    quicken_java()
    start_anew()
    with act("Servers: a Kafka broker, and an embedded Postgres for the log, the source, the tables and the catalog"):
        resolve_jars("kafka", COORDINATES, say=console.print)
        broker = start_broker(DEMO / "broker")
    try:
        server = embedded.start(HOME, console.print)
        apply_environment(server, broker.bootstrap)
        is_equal = play(server, broker.bootstrap)
    finally:
        broker.kill()  # its data is not needed again
        embedded.stop(HOME)
    console.rule(f"[bold]Done in {time.monotonic() - begun:.0f} s", align="left")
    return 0 if is_equal else 1


def start_anew() -> None:
    if HOME.exists():
        embedded.stop(HOME)
    if DEMO.exists():
        shutil.rmtree(DEMO)
    for folder in (HOME, WAREHOUSE, DEMO / "staging"):
        folder.mkdir(parents=True)


def apply_environment(server: EmbeddedServer, bootstrap: str) -> None:
    for name in (*_FOREIGN, "GOBBLIN_FAILPOINT"):
        os.environ.pop(name, None)
    for database in ("warehouse", "catalog"):
        create_database(server, database)
    reached = {
        "GOBBLIN_JDBC_NYC": SOURCE_DATABASE,
        "GOBBLIN_JDBC_WAREHOUSE": "warehouse",
        "GOBBLIN_ICEBERG_LAKEHOUSE": "catalog",
    }
    for prefix, database in reached.items():
        os.environ |= {
            f"{prefix}_URL": server.jdbc_url(database).removeprefix("jdbc:"),
            f"{prefix}_USER": server.user,
            f"{prefix}_PASSWORD": server.password(),
        }
    os.environ |= {
        "GOBBLIN_HOME": str(HOME),
        "GOBBLIN_ICEBERG_LAKEHOUSE_WAREHOUSE": f"file://{WAREHOUSE}",
        "GOBBLIN_KAFKA_BUS_BOOTSTRAP_SERVERS": bootstrap,
    }


def play(server: EmbeddedServer, bootstrap: str) -> bool:
    files = {job: str(Path("demo", "into", f"{job}.yaml")) for job in JOBS}
    with act("Act 1: January to October are loaded into two tables, a topic and a table of Iceberg"):
        say_counts("at the source", load_source(server))
        for file in files.values():
            command("run", file, "--no-dagster")
    with act("Act 2: November and December arrive; each job is killed while it loads them"):
        say_counts("at the source", let_arrive(server, 11, 12))
        for job, file in files.items():
            killed_command(JOBS[job], CLONE, "run", file, "--no-dagster")
    with act("Act 3: the next runs complete what is open, and find it there, or load it"):
        for file in files.values():
            command("run", file, "--no-dagster")
    with act("Act 4: the proof"):
        return prove(server, bootstrap)


def prove(server: EmbeddedServer, bootstrap: str) -> bool:
    names = {table: list_columns(server, table) for table in ("flights", "airports", "weather")}
    source = {table: read_table(server, SOURCE_DATABASE, "public", table, names[table]) for table in names}
    flights = read_table(server, "warehouse", "lake", "public_flights", names["flights"])
    airports = read_table(server, "warehouse", "lake", "airports", names["airports"])
    found = {
        "table lake.public_flights": ("flights", flights),
        "table lake.airports": ("airports", airports),
        "topic weather": ("weather", read_topic(bootstrap, "weather", names["weather"])),
        "Iceberg's nyc.weather": ("weather", read_iceberg("lakehouse", "nyc", "weather", names["weather"])),
    }
    shown = Table("place", title="source and place, row for row, as multisets", title_justify="left")
    for name in ("source rows", "rows there", "missing", "extra or doubled"):
        shown.add_column(name, justify="right")
    shown.add_column("")
    for place, (table, rows) in found.items():
        missing, extra = (source[table] - rows).total(), (rows - source[table]).total()
        numbers = (source[table].total(), rows.total(), missing, extra)
        verdict = "[red]DIFFERENT[/red]" if missing or extra else "[green]equal[/green]"
        shown.add_row(place, *(f"{number:,}" for number in numbers), verdict)
    console.print(shown)
    return all(source[table] == rows for table, rows in found.values())


def list_columns(server: EmbeddedServer, table: str) -> list[str]:
    with connect_source(server) as connection:
        query = sql.SQL("SELECT * FROM {} LIMIT 0").format(sql.Identifier("public", table))
        return [column.name for column in connection.execute(query).description or ()]


def read_table(
    server: EmbeddedServer, database: str, schema: str, table: str, columns: list[str]
) -> Counter[tuple[Any, ...]]:
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    with connect_source(server, database) as connection:
        query = sql.SQL("SELECT {} FROM {}").format(names, sql.Identifier(schema, table))
        return Counter(connection.execute(query).fetchall())


if __name__ == "__main__":
    sys.exit(main())
