"""A shop's tables are followed by their change log: copies, changes, a kill, one more table, a new column; the proof.

The shop is written to all the while. Each demo starts from nothing: it first removes what an earlier demo left below
.demo-cdc. No server and no worker outlives it.
"""

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from rich.table import Table

from demo.cdc.followers import Followers
from demo.cdc.places import CLONE, DEMO, HOME, LAKE, SOURCE_HOME, apply_environment, job_file
from demo.cdc.proof import TableVerdict, compare_tables
from demo.cdc.shop_database import LATE_TABLE, ROLE, TABLES, ShopDatabase, start_shop
from demo.cdc.writers import WRITERS, ShopWriters
from demo.kafka.places import quicken_java
from demo.stage import act, command, console, say_counts
from gobblin_assets.dagster.resources.spark import GobblinSparkResource
from gobblin_assets.db import embedded
from gobblin_assets.run.log import open_log
from gobblin_assets.run.stores import Stores
from gobblin_assets.settings import forget_unasked_variables

ROWS: Final = 100_000
ROWS_MIN: Final = 1_000
TRANSACTIONS_PER_S: Final = 150
WATCH_S: Final = 5.0

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Options:
    rows: int
    transactions_per_s: int
    watch_s: float


@dataclass(frozen=True, slots=True)
class FollowedShop:
    database: ShopDatabase
    writers: ShopWriters
    followers: Followers
    stores: Stores
    watch_s: float


def main(arguments: Sequence[str]) -> int:
    begun = time.monotonic()
    options = read_options(arguments)
    # If a signal ends it, it stops its servers and its workers as well.
    signal.signal(signal.SIGTERM, lambda *_signal: sys.exit(128 + signal.SIGTERM))
    os.chdir(CLONE)
    forget_unasked_variables(os.environ)
    quicken_java()
    start_anew()
    try:
        with open_followed_shop(options) as shop:
            is_equal = play(shop)
    finally:
        stop_servers()
    say_end(time.monotonic() - begun, is_equal=is_equal)
    return 0 if is_equal else 1


def read_options(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="make demo-cdc", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows to begin with (default: %(default)s)")
    parser.add_argument(
        "--transactions", type=int, default=TRANSACTIONS_PER_S, help="a second, at most (default: %(default)s)"
    )
    parser.add_argument("--watch", type=float, default=WATCH_S, help="seconds of each watch (default: %(default)s)")
    given = parser.parse_args(arguments)
    if given.rows < ROWS_MIN:
        parser.error(f"--rows: expected at least {ROWS_MIN}, found {given.rows}")
    if given.transactions < 1:
        parser.error(f"--transactions: expected at least 1, found {given.transactions}")
    return Options(given.rows, given.transactions, given.watch)


def start_anew() -> None:
    stop_servers()
    if DEMO.exists():
        shutil.rmtree(DEMO)
    HOME.mkdir(parents=True)


def stop_servers() -> None:
    for home in (HOME, SOURCE_HOME):
        if home.exists():
            embedded.stop(home)


@contextmanager
def open_followed_shop(options: Options) -> Iterator[FollowedShop]:
    with act("Servers: the shop's Postgres with wal_level=logical, and the one of the log"):
        database = start_shop(options.rows)
        console.print(f"The role {ROLE} may replicate and read; the publication lake has three tables.")
        say_counts("in the shop", database.count_rows())
        apply_environment(database.url, ROLE, database.role_password)
        embedded.start(HOME, console.print)
        command("discover", job_file())
    with (
        open_log() as log,
        ShopWriters(database, options.transactions_per_s) as writers,
        Followers(log.stores, database, writers) as followers,
    ):
        yield FollowedShop(database, writers, followers, log.stores, options.watch_s)


def play(shop: FollowedShop) -> bool:
    followers = shop.followers
    with act(f"Act 1: {WRITERS} tills write all the time; two workers start, and one of them copies the tables"):
        followers.start(2)
        followers.watch_copied(*(table for table in TABLES if table != LATE_TABLE))
    with act("Act 2: what changes is published as it comes"):
        followers.watch(shop.watch_s)
    with act("Act 3: the worker that reads is killed; when its leases have run out, the other one goes on"):
        kill_reader(shop)
    with act("Act 4: one more table joins the publication; it is copied while the others go on"):
        add_table(shop)
    with act("Act 5: a column is added, and orders get values in it"):
        shop.database.add_column()
        shop.writers.begin_channels()
        followers.watch(shop.watch_s)
    with act("Act 6: the shop closes; the rest is published, and the sink is drained"):
        close(shop)
    with act("Act 7: the proof"):
        return prove(shop)


def kill_reader(shop: FollowedShop) -> None:
    followers = shop.followers
    followers.kill(followers.require_reader())
    begun, published = time.monotonic(), followers.count_published()
    followers.require_reader()
    followers.watch_until(lambda: followers.count_published() > published, "a publication of the other worker")
    console.print(f"The next publication came {time.monotonic() - begun:.1f} s later.")
    followers.watch(shop.watch_s)
    console.print(
        "\n".join(followers.list_completed()) or "It had no publication open: what it had gathered was read again."
    )


def add_table(shop: FollowedShop) -> None:
    followers = shop.followers
    shop.database.add_late_table()
    shop.writers.begin_reviews()
    command("discover", job_file())
    drain(followers)
    followers.start(2)
    followers.watch_copied(LATE_TABLE)
    followers.watch(shop.watch_s)


def close(shop: FollowedShop) -> None:
    followers, writers = shop.followers, shop.writers
    writers.stop()
    begun = time.monotonic()
    followers.watch_published(shop.database.make_last_change())
    console.print(f"All is published {time.monotonic() - begun:.1f} s after the last transaction.")
    drain(followers)
    command("sink", "status", job_file())


def drain(followers: Followers) -> None:
    ending = followers.live
    command("sink", "drain", job_file())
    for worker in ending:
        followers.require_end(worker)


def prove(shop: FollowedShop) -> bool:
    spark: Any = GobblinSparkResource(master="local[2]", spark_config={"spark.sql.shuffle.partitions": "2"})
    session = spark.get_session()
    try:
        verdicts = compare_tables(shop.database, session, shop.stores.published)
    finally:
        session.stop()
    show(verdicts)
    writers = shop.writers
    # One more: the shop's last change is nobody's.
    console.print(
        f"the shop committed {writers.committed + 1:,} transactions with {writers.changes + 1:,} changes, and rolled "
        f"{writers.rolled_back:,} back"
    )
    transactions = frozenset[int]().union(*(each.transactions for each in verdicts))
    console.print(
        f"the change logs have {sum(each.copied for each in verdicts):,} copied rows, and "
        f"{sum(each.changes for each in verdicts):,} changes of {len(transactions):,} transactions; the rest is in the "
        "copies"
    )
    console.print(
        f"{sum(each.before for each in verdicts):,} rows say what was before a change; "
        f"{sum(each.unsent for each in verdicts):,} updates left out a large value that stayed"
    )
    kept = shop.database.look_at_log().kept_bytes
    console.print(
        f"WAL kept for the slot: {(kept or 0) / _MIB:.1f} MiB now, at most {shop.followers.kept_max / _MIB:.1f} MiB"
    )
    missing, extra = sum(each.missing for each in verdicts), sum(each.extra for each in verdicts)
    console.print(f"all tables, row by row, as multisets: {missing:,} missing, {extra:,} extra")
    return all(each.is_equal for each in verdicts)


def show(verdicts: Sequence[TableVerdict]) -> None:
    table = Table("table", title="source and read_current, row by row, as multisets", title_justify="left")
    for name in ("rows copied", "changes", "transactions", "source rows", "read_current", "missing", "extra"):
        table.add_column(name, justify="right")
    table.add_column("")
    for each in verdicts:
        numbers = (
            *(each.copied, each.changes, len(each.transactions), each.source_rows, each.current_rows),
            *(each.missing, each.extra),
        )
        verdict = "[green]equal[/green]" if each.is_equal else "[red]DIFFERENT[/red]"
        table.add_row(each.table, *(f"{number:,}" for number in numbers), verdict)
    console.print(table)


def say_end(seconds: float, *, is_equal: bool) -> None:
    console.rule(f"[bold]Done in {seconds:.0f} s", align="left")
    console.print(
        "[green]The tables that read_current gives are the shop's tables, row by row.[/green]"
        if is_equal
        else "[red]What read_current gives is not what the shop has.[/red]"
    )
    console.print(
        f"The job is {job_file()}; its files lie below {LAKE.relative_to(CLONE)}, and what the workers said in "
        f"{DEMO.relative_to(CLONE)}/worker-*.log. All servers are stopped.\n"
        "The last changes of a table, each with its place in the server's log:\n"
        "    .venv/bin/python -m demo.cdc.show_changes orders"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
