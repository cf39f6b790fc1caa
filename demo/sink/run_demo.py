"""Several workers publish a topic at once: they join, one is killed, the broker is killed, they leave; then the proof.

Orders are written all the while. Each demo starts from nothing: it first removes what an earlier demo left below
.demo-sink. No server and no worker outlives it.
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
from typing import Final

from demo.kafka.broker import COORDINATES, KafkaBroker, start_broker
from demo.kafka.jars import resolve_jars
from demo.kafka.places import quicken_java
from demo.sink.orders import PARTITIONS, OrderWriters
from demo.sink.places import BROKER, CLONE, DEMO, HOME, LAKE, apply_environment, job_file
from demo.sink.proof import SinkVerdict, compare_orders, count_log
from demo.sink.workers import Workers
from demo.stage import act, command, console
from gobblin_assets.db import embedded
from gobblin_assets.run.log import open_log
from gobblin_assets.run.stores import Stores
from gobblin_assets.settings import forget_unasked_variables

ORDERS_PER_S: Final = 5_000
ORDERS_PER_S_MIN: Final = 100
WATCH_S: Final = 6.0
BROKER_AWAY_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Options:
    orders_per_s: int
    watch_s: float


@dataclass(frozen=True, slots=True)
class SinkShop:
    broker: KafkaBroker
    writers: OrderWriters
    workers: Workers
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
        with open_sink_shop(options) as shop:
            verdict = play(shop)
    finally:
        embedded.stop(HOME)
    say_end(time.monotonic() - begun, verdict)
    return 0 if verdict.is_equal else 1


def read_options(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="make demo-sink", description=__doc__)
    parser.add_argument("--orders", type=int, default=ORDERS_PER_S, help="orders a second (default: %(default)s)")
    parser.add_argument("--watch", type=float, default=WATCH_S, help="seconds of each watch (default: %(default)s)")
    given = parser.parse_args(arguments)
    if given.orders < ORDERS_PER_S_MIN:
        parser.error(f"--orders: expected at least {ORDERS_PER_S_MIN}, found {given.orders}")
    return Options(given.orders, given.watch)


def start_anew() -> None:
    if HOME.exists():
        embedded.stop(HOME)
    if DEMO.exists():
        shutil.rmtree(DEMO)
    HOME.mkdir(parents=True)


@contextmanager
def open_sink_shop(options: Options) -> Iterator[SinkShop]:
    with act("Servers: a Kafka broker and an embedded Postgres"):
        resolve_jars("kafka", COORDINATES, say=console.print)
        broker = start_broker(BROKER)
        try:
            console.print(f"Kafka 4.1 answers on {broker.bootstrap}; the topic has {PARTITIONS} partitions")
            apply_environment(broker.bootstrap)
            embedded.start(HOME, console.print)
            writers = OrderWriters(broker.bootstrap, options.orders_per_s)
        except BaseException:
            broker.kill()
            raise
    try:
        with open_log() as log, writers, Workers(log.stores, writers) as workers:
            yield SinkShop(broker, writers, workers, log.stores, options.watch_s)
    finally:
        broker.kill()  # its data is not needed again


def play(shop: SinkShop) -> SinkVerdict:
    workers = shop.workers
    with act("Act 1: orders come all the time, some in transactions; two workers share eight lanes"):
        workers.start(2)
        workers.watch_shares(4, 4)
        workers.watch(shop.watch_s)
    with act("Act 2: two workers more; each of the four gets two lanes"):
        workers.start(2)
        workers.watch_shares(2, 2, 2, 2)
        workers.watch(shop.watch_s)
    with act("Act 3: one worker is killed; when its leases have run out, the others take its lanes over"):
        kill_worker(shop)
    with act("Act 4: the broker is killed, and started again with its data"):
        lose_broker(shop)
    with act("Act 5: two workers are ended by SIGTERM; one is left, and eight lanes become four"):
        workers.end(workers.live[1:])
        workers.watch_shares(8)
        command("sink", "scale", job_file(), "4")
        workers.watch_shares(4)
        workers.watch(shop.watch_s)
    with act("Act 6: no more orders; the rest is published, and the sink is drained"):
        drain(shop)
    with act("Act 7: the proof"):
        verdict = compare_orders(shop.broker.bootstrap, shop.stores.published)
        show(verdict)
    return verdict


def kill_worker(shop: SinkShop) -> None:
    workers = shop.workers
    workers.kill(workers.live[-1])
    begun = time.monotonic()
    workers.watch_shares(3, 3, 2)
    console.print(f"All lanes are held again after {time.monotonic() - begun:.1f} s.")
    workers.watch(shop.watch_s)
    completed = workers.list_completed()
    console.print("\n".join(completed) or "It had no publication open: what it had gathered was read again.")


def lose_broker(shop: SinkShop) -> None:
    workers = shop.workers
    shop.broker.kill()
    console.print("[red]the broker is killed (SIGKILL)[/red]")
    workers.watch(BROKER_AWAY_S)
    begun = time.monotonic()
    shop.broker.restart()
    console.print(f"the broker is started again; it answers after {time.monotonic() - begun:.1f} s")
    begun, published = time.monotonic(), workers.count_published()
    workers.watch_until(lambda: workers.count_published() > published, "a publication after the broker's return")
    console.print(f"The next publication came {time.monotonic() - begun:.1f} s later.")
    workers.watch_shares(3, 3, 2)
    workers.watch(shop.watch_s)


def drain(shop: SinkShop) -> None:
    workers = shop.workers
    shop.writers.stop()
    goal = count_log(shop.broker.bootstrap, "read_committed")
    workers.watch_until(lambda: workers.count_published() >= goal, f"the publication of {goal:,} orders")
    workers.say_line()
    command("sink", "drain", job_file())
    for worker in workers.live:
        workers.require_end(worker)
    command("sink", "status", job_file())


def show(verdict: SinkVerdict) -> None:
    console.print(
        f"in the topic's log: {verdict.in_log:,} orders, {verdict.in_log - verdict.committed:,} of them aborted"
    )
    console.print(f"committed, as a plain consumer reads them: {verdict.committed:,}")
    console.print(f"published: {verdict.rows:,} rows in {verdict.files:,} files, and {verdict.letters} dead letters")
    console.print(
        f"by partition, offset and content, as multisets: {verdict.missing:,} missing, {verdict.extra:,} extra"
    )


def say_end(seconds: float, verdict: SinkVerdict) -> None:
    console.rule(f"[bold]Done in {seconds:.0f} s", align="left")
    console.print(
        "[green]The topic and the dataset are equal: every committed order is published exactly once.[/green]"
        if verdict.is_equal
        else "[red]What was published is not what was committed.[/red]"
    )
    console.print(
        f"The job is {job_file()}; its files lie below {LAKE.relative_to(CLONE)}, and what the workers said in "
        f"{DEMO.relative_to(CLONE)}/worker-*.log. All servers are stopped."
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
