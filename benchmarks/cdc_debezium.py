"""Changes of Postgres, by a worker of a sink and by Debezium in Kafka Connect: a backlog, and a steady light load.

Both read the same changes of one server. What each gives on is counted, and must be as much as was written.
"""

import datetime as dt
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from confluent_kafka import Consumer

from benchmarks.cdc_changes import Backlog, SpentSeconds, begin_job, read_by_worker
from benchmarks.cdc_pace import (
    COMMITS_PER_S,
    EVERY_S,
    ROWS_OF_A_COMMIT,
    WARM_S,
    await_rows,
    list_delays,
    write_steadily,
)
from benchmarks.cdc_world import TABLES, count_begun, open_log_source
from benchmarks.connect_worker import CONNECT, DEBEZIUM, open_connect
from benchmarks.debezium_place import DebeziumPlace, follow_changes, make_slot, open_consumer, read_clocks
from benchmarks.kafka_world import open_broker
from benchmarks.sink_world import WAIT_S_MAX, JobProcess, SinkJob, percentile, start_worker
from benchmarks.tables import Options, Samples, Table, in_turns, seconds
from benchmarks.world import World

ROWS, ROWS_QUICK = 500_000, 20_000
ROUND_S, ROUND_S_QUICK = 20.0, 5.0

WORKER = "sink run: Parquet, published"
TO_TOPIC, TO_FILE = "Debezium: records of a topic", "Debezium, Connect's file sink: lines of text"

_FIRST_ID: Final = 1_000_000_000
"""Of the steady load: behind all rows of the backlog."""
_POLL_S: Final = 0.1
_REST_S: Final = 3.0
"""Nothing has come for so long: now it is counted."""
_FETCH_S: Final = 0.02
_BATCH: Final = 10_000
_P50, _P95, _CORES = "commit to visible, p50", "p95", "cores"


@dataclass(frozen=True, slots=True)
class _Reading:
    """``broker_s``: processor seconds of the broker; ``until_first_s``: of the wall, before anything came."""

    spent: SpentSeconds
    broker_s: float
    until_first_s: float


@dataclass(frozen=True, slots=True)
class _Arrival:
    """When the first and the last came, and the clocks of the processor then."""

    first_s: float
    last_s: float
    clocks: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class _Figures:
    wall: Samples = field(default_factory=Samples)
    cpu: Samples = field(default_factory=Samples)
    broker: Samples = field(default_factory=Samples)
    server: Samples = field(default_factory=Samples)
    until_first: Samples = field(default_factory=Samples)

    def add(self, name: str, reading: _Reading) -> None:
        self.wall.add(name, reading.spent.wall_s)
        self.cpu.add(name, reading.spent.cpu_s)
        self.broker.add(name, reading.broker_s)
        self.server.add(name, reading.spent.server_s)
        self.until_first.add(name, reading.until_first_s)


def measure(world: World, options: Options) -> list[Table]:
    with (
        open_log_source(world) as source,
        open_broker(world) as broker,
        open_connect(broker.bootstrap, world.home / "connect") as connect,
    ):
        source.make_tables()
        place = DebeziumPlace(source, broker, connect)
        return [_measure_backlog(place, options), _measure_pace(place, options)]


def _measure_backlog(place: DebeziumPlace, options: Options) -> Table:
    source = place.source
    jobs = [begin_job(source) for _run in range(options.runs)]
    # One more: the first reading warms the JVM, and is no figure.
    slots = [make_slot(source, f"backlog_{number}") for number in range(2 * options.runs + 1)]
    rows = source.write_changes(ROWS_QUICK if options.quick else ROWS, 1)
    backlog = Backlog(source, rows, source.find_end())
    _read_by_debezium(place, backlog, slots.pop(), to_file=True)
    ways: dict[str, Callable[[], _Reading]] = {
        WORKER: lambda: _Reading(read_by_worker(backlog, jobs.pop()), 0.0, 0.0),
        TO_TOPIC: lambda: _read_by_debezium(place, backlog, slots.pop(), to_file=False),
        TO_FILE: lambda: _read_by_debezium(place, backlog, slots.pop(), to_file=True),
    }
    figures = _Figures()
    for name in in_turns(list(ways), options.runs):
        sys.stderr.write(f"  {name} …\n")
        figures.add(name, ways[name]())
    return _describe_backlog(rows, figures)


def _read_by_debezium(place: DebeziumPlace, backlog: Backlog, slot: str, *, to_file: bool) -> _Reading:
    file = place.folder / f"{slot}.lines" if to_file else None
    before = read_clocks(place)
    begun_s = time.monotonic()
    with follow_changes(place, slot, file) as topics:
        if file is None:
            came = _await_all(
                place, (slot,), lambda: place.find_ends(topics), lambda: place.count_records(topics), backlog.rows
            )
        else:
            came = _await_all(
                place, (slot, f"{slot}-file"), lambda: _count_bytes(file), lambda: _count_lines(file), backlog.rows
            )
            if (lines := _count_lines(file)) != backlog.rows:
                raise RuntimeError(f"the file has {lines:,} lines of {backlog.rows:,}")
        if (records := place.count_records(topics)) != backlog.rows:
            raise RuntimeError(f"the topics have {records:,} records of {backlog.rows:,}")
    cpu_s, broker_s, server_s = (new - old for old, new in zip(before, came.clocks, strict=True))
    return _Reading(SpentSeconds(cpu_s, server_s, came.last_s - begun_s), broker_s, came.first_s - begun_s)


def _await_all(
    place: DebeziumPlace,
    connectors: Sequence[str],
    measure_size: Callable[[], int],
    count: Callable[[], int],
    rows: int,
) -> _Arrival:
    """Wait until all rows are there. They are counted only once nothing has come for a while: that costs time."""
    size, grown_s = 0, time.monotonic()
    first_s, rested_s, until_s = 0.0, grown_s, grown_s + 2 * WAIT_S_MAX
    while time.monotonic() < until_s:
        found, now_s = measure_size(), time.monotonic()
        if found != size:
            size, grown_s, rested_s = found, now_s, now_s
            first_s = first_s or now_s
        elif size >= rows and now_s - rested_s >= _REST_S:
            clocks = read_clocks(place)
            if count() >= rows:
                return _Arrival(first_s, grown_s, clocks)
            rested_s = time.monotonic()
        else:
            for each in connectors:
                place.connect.require_running(each)
        time.sleep(_POLL_S)
    raise RuntimeError(f"{connectors} have brought a size of {size:,}, and less than {rows:,} rows")


def _count_bytes(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _count_lines(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(1 for _line in lines)


class _Follower(threading.Thread):
    """Notes how long after its commit each change came to a topic, and to the file behind it."""

    def __init__(self, consumer: Consumer, file: Path) -> None:
        super().__init__(daemon=True)
        self.in_topic: list[tuple[float, float]] = []
        self.in_file: list[tuple[float, float]] = []
        self.failure: Exception | None = None
        self._consumer = consumer
        self._file = file
        self._read = 0
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self.join()
        self._consumer.close()

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                self._take()
        except Exception as error:  # noqa: BLE001  the thread that waits raises it
            self.failure = error

    def _take(self) -> None:
        messages = self._consumer.consume(_BATCH, _FETCH_S)
        came_s = time.time()
        values = [value for each in messages if each.error() is None and (value := each.value()) is not None]
        self.in_topic += [(committed_s(value), came_s) for value in values]
        if self._file.exists():
            with self._file.open("rb") as file:
                file.seek(self._read)
                text = file.read()
            came_s = time.time()
            # The last line may not be complete yet.
            whole = text[: text.rfind(b"\n") + 1]
            self._read += len(whole)
            self.in_file += [(committed_s(line), came_s) for line in whole.splitlines()]


def committed_s(value: bytes) -> float:
    """When the transaction of a change was committed, by the server's own time."""
    return float(json.loads(value)["source"]["ts_us"]) / 1e6


def _measure_pace(place: DebeziumPlace, options: Options) -> Table:
    source = place.source
    round_s = ROUND_S_QUICK if options.quick else ROUND_S
    sink = {"every_s": EVERY_S, "roll": {"age_s": 0}}
    job = source.make_job(TABLES, {"first_copy": False}, sink=sink)
    slot, file = make_slot(source, "pace"), place.folder / "pace.lines"
    samples: dict[str, Samples] = {name: Samples() for name in (WORKER, TO_TOPIC, TO_FILE)}
    with (
        follow_changes(place, slot, file) as topics,
        start_worker(job) as worker,
        _Follower(open_consumer(place.broker.bootstrap, topics), file) as follower,
    ):
        worker.await_that(lambda: count_begun(job) == len(TABLES), "the beginning of the tables' logs")
        written = write_steadily(source, _FIRST_ID, WARM_S)
        _await_pace(place, job, worker, follower, written)
        for _run in range(options.runs):
            begun_at, begun_s = dt.datetime.now(dt.UTC), time.monotonic()
            before = (worker.cpu_s(), *read_clocks(place)[:2])
            count = write_steadily(source, _FIRST_ID + written, round_s)
            written += count
            _await_pace(place, job, worker, follower, written)
            spent_s = time.monotonic() - begun_s
            after = (worker.cpu_s(), *read_clocks(place)[:2])
            own, connect, broker = ((new - old) / spent_s for old, new in zip(before, after, strict=True))
            for name, came in ((TO_TOPIC, follower.in_topic), (TO_FILE, follower.in_file)):
                at_s = begun_at.timestamp()
                _add_pace(samples[name], [end_s - start_s for start_s, end_s in came if start_s >= at_s], count)
                samples[name].add(_CORES, connect + broker)
            _add_pace(samples[WORKER], list_delays(source, job, begun_at), count)
            samples[WORKER].add(_CORES, own)
        worker.end()
    return _describe_pace(samples, options, round_s)


def _await_pace(place: DebeziumPlace, job: SinkJob, worker: JobProcess, follower: _Follower, rows: int) -> None:
    await_rows(job, worker, rows)
    until_s = time.monotonic() + WAIT_S_MAX
    while min(len(follower.in_topic), len(follower.in_file)) < rows:
        for each in ("pace", "pace-file"):
            place.connect.require_running(each)
        if follower.failure is not None or time.monotonic() > until_s:
            found = f"{len(follower.in_topic):,} in the topics and {len(follower.in_file):,} in the file"
            raise RuntimeError(f"of {rows:,} changes {found} were found") from follower.failure
        time.sleep(_POLL_S)


def _add_pace(samples: Samples, delays: list[float], expected: int) -> None:
    if len(delays) != expected:
        raise RuntimeError(f"{len(delays):,} changes of {expected:,} were found")
    samples.add(_P50, percentile(delays, 0.5))
    samples.add(_P95, percentile(delays, 0.95))


def _describe_backlog(rows: int, figures: _Figures) -> Table:
    wall, cpu = figures.wall, figures.cpu
    others = (TO_TOPIC, TO_FILE)
    first_s = figures.until_first.median(TO_TOPIC)
    lines = [
        (*wall.row(name), f"{rows / wall.median(name):,.0f}", seconds(cpu.median(name)),
         f"{rows / cpu.median(name):,.0f}", seconds(figures.broker.median(name)), seconds(figures.server.median(name)))
        for name in wall.by_name
    ]  # fmt: skip
    return Table(
        f"{rows:,} changes of Postgres, a backlog, beside Debezium",
        ("way", "wall, median", "min", "max", "rows/s", "CPU", "rows in a CPU second", "CPU of the broker",
         "CPU of the source"),
        tuple(lines),
        (
            (
                "Tables and transactions are those of `cdc_changes`; each reading has a slot of its own. What came was "
                "counted each time: it was exactly as much as was written."
            ),
            (
                "The worker: without the start of its process and its imports, until the last row is published and it "
                "has ended. It publishes exactly once."
            ),
            (
                f"Debezium {DEBEZIUM} in a distributed worker of Kafka Connect {CONNECT}, which runs already and has "
                "read the backlog once: from the order to begin until the last change is committed to its topic, or "
                "is in the file. JSON without schemas, and a deletion is one record; else the defaults."
            ),
            "Its topics are written exactly once; the file sink is at least once, and syncs nothing.",
            (
                f"Of its wall, {first_s:.1f} s pass before its first record (median); from there to the topic's last "
                f"it reads {rows / (wall.median(TO_TOPIC) - first_s):,.0f} rows/s."
            ),
            _compare("rows/s", {name: wall.median(name) / wall.median(WORKER) for name in others}),
            _compare(
                "rows in a CPU second, without the broker's",
                {name: cpu.median(name) / cpu.median(WORKER) for name in others},
            ),
        ),
    )  # fmt: skip


def _compare(figure: str, ratios: Mapping[str, float]) -> str:
    """The worker's figure as multiples of the others'."""
    return f"{figure}, of Debezium's to topics: {ratios[TO_TOPIC]:.3f}; to a file: {ratios[TO_FILE]:.3f}."


def _describe_pace(samples: dict[str, Samples], options: Options, round_s: float) -> Table:
    def show(name: str, figure: str) -> str:
        each = samples[name]
        return f"{each.median(figure):.2f} s ({min(each.by_name[figure]):.2f} to {max(each.by_name[figure]):.2f} s)"

    p95 = {name: each.median(_P95) for name, each in samples.items()}
    return Table(
        f"{COMMITS_PER_S:.0f} commits a second, beside Debezium",
        ("way", _P50, _P95, _CORES),
        tuple(
            (name, show(name, _P50), show(name, _P95), f"{each.median(_CORES):.2f} cores")
            for name, each in samples.items()
        ),
        (
            (
                f"All three follow the same commits at the same time: transactions of {ROWS_OF_A_COMMIT} rows over "
                f"{len(TABLES)} tables. Medians of {options.runs} rounds of {round_s:.0f} s, with the smallest and the "
                "largest."
            ),
            (
                "From the server's own time of the commit: until T3 of the publication that has the row (a cut each "
                "second), until a consumer of committed records has it, until its line is in the file."
            ),
            "The cores of Debezium are those of Connect with both connectors, and of the broker.",
            _compare("p95", {name: p95[WORKER] / p95[name] for name in (TO_TOPIC, TO_FILE)}),
        ),
    )
