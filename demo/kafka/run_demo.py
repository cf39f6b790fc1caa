"""Four acts: stream, kill, recover, prove. The product's own commands read and publish.

Each demo starts from nothing: it first removes what an earlier demo left below .demo-kafka. No server outlives it.
"""

import argparse
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from rich import box
from rich.table import Table

from demo.kafka.broker import COORDINATES, KafkaBroker, start_broker
from demo.kafka.jars import resolve_jars
from demo.kafka.places import APP, BROKER, CLONE, DEMO, HOME, JOB, JOB_FILE, LAKE, WEB, apply_environment, quicken_java
from demo.kafka.proof import Verdict, compare
from demo.kafka.registry_server import serve_registry
from demo.kafka.stream import Stream
from demo.stage import act, command, console, join_counts, killed_command, list_visible
from gobblin_assets.cli.output import to_text
from gobblin_assets.dagster.resources.spark import GobblinSparkResource
from gobblin_assets.db import embedded
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.log import open_log
from gobblin_assets.settings import forget_unasked_variables
from gobblin_assets.spark import connect_server
from gobblin_assets.state.overview import list_gaps

VIEWS: Final = 60_000
VIEWS_MIN: Final = 1_200
"""With fewer views, some kind of broken record would be missing."""

ROUNDS: Final = 3

# Each day's directory is a step of its own: after the second step, two directories are visible.
FAILPOINT: Final = "step_after=kill@2"

_TEXTS: Final = frozenset({"topic", "directory", "partition", "published", "sent", "reason", ""})


@dataclass(frozen=True, slots=True)
class Shop:
    broker: KafkaBroker
    stream: Stream


def main(arguments: Sequence[str]) -> int:
    begun = time.monotonic()
    views = read_options(arguments)
    # If a signal ends it, it stops its servers as well.
    signal.signal(signal.SIGTERM, lambda *_signal: sys.exit(128 + signal.SIGTERM))
    os.chdir(CLONE)
    forget_unasked_variables(os.environ)
    quicken_java()
    start_anew()
    try:
        with open_shop(views) as shop:
            is_equal = play(shop)
    finally:
        stop_servers()
    say_end(time.monotonic() - begun, is_equal=is_equal)
    return 0 if is_equal else 1


def read_options(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make demo-kafka", description=__doc__)
    parser.add_argument("--views", type=int, default=VIEWS, help="page views in all (default: %(default)s)")
    views: int = parser.parse_args(arguments).views
    if views < VIEWS_MIN:
        parser.error(f"--views: expected at least {VIEWS_MIN}, found {views}")
    return views


@contextmanager
def open_shop(views: int) -> Iterator[Shop]:
    """The broker and the registry of the shop, and the servers of the product."""
    with serve_registry() as registry:
        with act("Servers: a Kafka broker, a schema registry, an embedded Postgres, a warm Spark"):
            resolve_jars("kafka", COORDINATES, say=console.print)
            broker = start_broker(BROKER)
            console.print(f"Kafka 4.1 answers on {broker.bootstrap}, the schema registry on {registry.url}")
            try:
                apply_environment(broker.bootstrap, registry.url)
                embedded.start(HOME, console.print)
                command("spark", "start", "--master", "local[2]", "--capability", "kafka", "--capability", "avro")
                stream = Stream(broker.bootstrap, registry, views // ROUNDS // 2)
            except BaseException:
                broker.kill()
                raise
        try:
            yield Shop(broker, stream)
        finally:
            broker.kill()  # its data is not needed again


def play(shop: Shop) -> bool:
    with act("Act 1: two days of page views, and a first run"):
        console.print("A shop's web site writes Avro in transactions, its app plain JSON; some records are broken.")
        send_round(shop.stream)
        command("run", job_file())
    with act("Act 2: two days more, and late views; a run is killed while publishing"):
        send_round(shop.stream)
        killed_command(FAILPOINT, CLONE, "run", job_file(), "--dataset", WEB)
        show_wreck()
    with act("Act 3: views keep coming; the next run completes that publication, then reads the rest"):
        send_round(shop.stream)
        command("run", job_file())
    with act("Act 4: the proof"):
        verdicts = prove(shop)
        show_records(verdicts)
        show_letters(verdicts)
        show_days(verdicts)
        show_ledger()
    return all(verdict.is_equal for verdict in verdicts)


def start_anew() -> None:
    stop_servers()
    if DEMO.exists():
        shutil.rmtree(DEMO)
    HOME.mkdir(parents=True)


def stop_servers() -> None:
    if HOME.exists():
        connect_server.stop_connect(HOME)
        embedded.stop(HOME)


def job_file() -> str:
    return str(JOB_FILE.relative_to(CLONE))


def send_round(stream: Stream) -> None:
    for topic, sent in stream.send_round().items():
        records, aborted = sent.pop("records"), sent.pop("aborted", 0)
        again = f"; {aborted:,} more in transactions that were aborted, and then sent again" if aborted else ""
        console.print(f"sent to {topic}: {records:,} records, of which {join_counts(+sent)}{again}")


def show_wreck() -> None:
    """Show the state after the kill: some files visible, none of them published, no watermark moved."""
    command("commit", "list", "--job", JOB)
    with open_log() as log:
        found = log.stores.published.find(JobName(JOB), DatasetUrn(WEB), role=Role.DATA)
        listed = {file.path for segment in found.segments for file in segment.files()} if found else set()
    lying = [path for path in list_visible(LAKE) if WEB in path]
    console.print(f"Files of {WEB} below {LAKE.relative_to(CLONE)}: {len(lying)}")
    console.print(f"Files that the ledger lists, and read_dataset reads: {len(listed)}")
    if len(lying) <= len(listed):
        raise SystemExit("The run should have been killed after its first visible file.")


def prove(shop: Shop) -> list[Verdict]:
    warm = connect_server.find(HOME)
    spark: Any = GobblinSparkResource(remote=None if warm is None else warm.url)
    session = spark.get_session()
    stream = shop.stream
    with open_log() as log:
        return [
            compare(
                topic,
                stream.accounts[topic],
                stream.versions,
                bootstrap=shop.broker.bootstrap,
                spark=session,
                published=log.stores.published,
            )
            for topic in (WEB, APP)
        ]


def show_records(verdicts: Sequence[Verdict]) -> None:
    table = open_table(
        "broker and datasets, record for record by partition, offset and content, as multisets",
        *("topic", "in the log", "aborted", "committed", "rows", "dead letters", "missing", "extra", ""),
    )
    table.add_column("")
    for each in verdicts:
        aborted = each.written - each.committed
        numbers = (each.written, aborted, each.committed, each.rows, each.letters, each.missing, each.extra)
        verdict = "[green]exactly once[/green]" if each.is_equal else "[red]DIFFERENT[/red]"
        table.add_row(each.topic, *(f"{number:,}" for number in numbers), verdict)
    console.print(table)
    console.print("aborted: seen by a read_uncommitted consumer only. extra: doubled, altered, or never committed.")


def show_letters(verdicts: Sequence[Verdict]) -> None:
    table = open_table(
        "dead letters: what was sent, and the reason they were set aside for", *("topic", "records", "sent", "reason")
    )
    for each in verdicts:
        for (fault, reason), count in sorted(each.faults.items()):
            table.add_row(each.topic, f"{count:,}", fault, reason)
    console.print(table)


def show_days(verdicts: Sequence[Verdict]) -> None:
    columns = [name for each in verdicts for name in (f"rows of {each.topic}", "came late")]
    table = open_table("directories by event time: late views lie where they belong", "directory", *columns)
    days: Counter[str] = sum((each.days for each in verdicts), Counter())
    for day in sorted(days):
        table.add_row(f"day={day}", *(f"{n[day]:,}" for each in verdicts for n in (each.days, each.late_by_day)))
    console.print(table)


def show_ledger() -> None:
    """Print a line for each partition; the commands print one for each interval, too many for a small terminal."""
    with open_log() as log:
        lines = log.overview.list_ledger(JobName(JOB), None, with_retired=False)
        watermarks = {each.key: each.watermark for each in log.overview.list_watermarks(JobName(JOB), None)}
    intervals: dict[str, list[str]] = {}
    for line in lines:
        intervals.setdefault(line.key, []).append(to_text(line.interval))
    table = open_table("the ledger: published offsets by partition", "partition", "published", "watermark")
    for key, published in intervals.items():
        table.add_row(key, " ".join(published), to_text(watermarks[key]))
    console.print(table)
    console.print(f"gaps between them: {len(list_gaps(lines)) or 'none'}")


def open_table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        is_text = name in _TEXTS
        table.add_column(name, justify="left" if is_text else "right", no_wrap=name != "reason")
    return table


def say_end(seconds: float, *, is_equal: bool) -> None:
    console.rule(f"[bold]Done in {seconds:.0f} s", align="left")
    verdict = "[green]Every committed record is published exactly once, as a row or as a dead letter.[/green]"
    console.print(
        verdict if is_equal else "[red]What was published is not what was committed: see the tables of act 4.[/red]"
    )
    home = HOME.relative_to(CLONE)
    console.print(
        f"The job is {job_file()}; its files lie below {LAKE.relative_to(CLONE)}. All servers are stopped.\n"
        "What was published can still be looked at (this starts the embedded Postgres again):\n"
        f"    GOBBLIN_HOME={home} gobblin-assets status\n"
        f"    GOBBLIN_HOME={home} gobblin-assets ledger --files\n"
        f"    GOBBLIN_HOME={home} gobblin-assets db stop"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
