"""The time and the driver's memory that planning of many partitions takes, and that records take no such memory.

Each figure of memory comes from a process of its own.
"""

import gc
import json
import sys
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.child import run_child
from benchmarks.kafka_alternatives import run_once
from benchmarks.kafka_world import (
    RECORDS,
    RECORDS_QUICK,
    Topic,
    describe_topics,
    make_order_topic,
    make_topics,
    open_broker,
    open_kafka_session,
    send,
    to_json,
)
from benchmarks.memory import peak_mb, reset_peak, resident_mb
from benchmarks.tables import Laps, Options, Samples, Table, verdict
from benchmarks.world import World, new_job, reopen_world
from gobblin_assets.dagster.resources.kinds import KafkaConnectionResource
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import WHOLE
from gobblin_assets.model.state import DatasetId, DatasetState, KeyId, KeyState
from gobblin_assets.model.urn import JobName
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.model.work_unit import MultiWorkUnit
from gobblin_assets.run.job_kind import UnitPlan
from gobblin_assets.run.packing import pack_run
from gobblin_assets.sources.source_port import SourceRequest
from gobblin_assets.spec.job_parsing import parse_job, resolve_datasets

TOPICS = 100
TOPICS_FEW = 10
PARTITIONS = 100
PLAN_S_MAX = 2.0
PARTITION_KB_MAX = 2.0
RECORDS_MB_MAX = 10.0

ASK, PLAN, PACK, ALL = "ask the brokers", "plan the topics", "pack the WorkUnits", "all of it"

_CHILD_S_MAX = 600.0
_BROKER = {"segment.index.bytes": "4096", "log.index.size.max.bytes": "4096"}
"""For ten thousand logs on one broker, whose empty indexes would have 10 MB each."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What a run holds while it goes on; ``spent``: seconds by phase."""

    plans: Sequence[UnitPlan]
    tasks: Sequence[MultiWorkUnit]
    spent: Mapping[str, float]


def measure(world: World, options: Options) -> list[Table]:
    few, many = (2, 10) if options.quick else (TOPICS_FEW, TOPICS)
    records = RECORDS_QUICK if options.quick else RECORDS
    with open_broker(world, heap_mb=2_048, settings=_BROKER) as broker:
        names = [f"topic-{number:03d}" for number in range(many)]
        make_topics(broker.bootstrap, names, PARTITIONS)
        send(broker.bootstrap, ((name, number, b"one") for name in names for number in range(PARTITIONS)))
        sizes = (records // 10, records)
        topics = [make_order_topic(broker.bootstrap, f"orders-{count}", count, to_json) for count in sizes]
        asked = {"home": str(world.home), "bootstrap": broker.bootstrap}
        return [
            _measure_time(asked, names, options),
            _measure_memory(asked, names, few, options),
            _measure_records(asked, topics, options),
        ]


def _measure_time(asked: Mapping[str, Any], names: Sequence[str], options: Options) -> Table:
    samples = Samples()
    first, *others = _run_child({**asked, "do": "time", "topics": names, "runs": options.runs + 1})
    for laps in others:
        samples.add_all(laps)
    partitions = len(names) * PARTITIONS
    return Table(
        f"Planning {len(names)} topics of {PARTITIONS} partitions",
        ("phase", "median", "min", "max", "the first in its process"),
        tuple(samples.row(name, f"{first[name]:.3f} s") for name in samples.by_name),
        (
            "Each partition has a watermark and a record after it, so each gets a WorkUnit.",
            f"Asking takes three requests: the topics, and both ends of {partitions:,} logs.",
            verdict(f"{partitions:,} partitions are planned", samples.median(ALL), PLAN_S_MAX),
        ),
    )


def _measure_memory(asked: Mapping[str, Any], names: Sequence[str], few: int, options: Options) -> Table:
    grown = Samples()
    counts = {few * PARTITIONS: names[:few], len(names) * PARTITIONS: names}
    traced: dict[int, Mapping[str, float]] = {}
    for count, chosen in counts.items():
        (traced[count],) = _run_child({**asked, "do": "trace", "topics": chosen})
        for _run in range(options.runs):
            (found,) = _run_child({**asked, "do": "memory", "topics": chosen})
            grown.add(f"{count}", found["grown_mb"])
    low, high = counts
    each_kb = (grown.median(f"{high}") - grown.median(f"{low}")) * 1e3 / (high - low)
    held_kb = (traced[high]["held_mb"] - traced[low]["held_mb"]) * 1e3 / (high - low)
    return Table(
        "What planning takes of the driver's memory",
        ("partitions", "the process grew by, median", "min", "max", "objects held", "objects at their peak"),
        tuple(
            (
                f"{count:,}",
                f"{grown.median(f'{count}'):.1f} MB",
                f"{min(grown.by_name[f'{count}']):.1f} MB",
                f"{max(grown.by_name[f'{count}']):.1f} MB",
                f"{traced[count]['held_mb']:.1f} MB",
                f"{traced[count]['peak_mb']:.1f} MB",
            )
            for count in counts
        ),
        (
            "Growth: the kernel's peak of the Python process, less its size when one topic was planned.",
            "Objects: Python's own count (tracemalloc), measured in another process.",
            verdict("A partition, of what is held while the run goes on", held_kb, PARTITION_KB_MAX, "KB"),
            verdict("A partition, of the process's peak", each_kb, PARTITION_KB_MAX, "KB"),
        ),
    )


def _measure_records(asked: Mapping[str, Any], topics: Sequence[Topic], options: Options) -> Table:
    peaks, heaps = Samples(), Samples()
    for _run in range(options.runs):
        for topic in topics:
            (found,) = _run_child({**asked, "do": "read", "topics": [topic.name], "records": topic.records})
            peaks.add(f"{topic.records:,}", found["peak_mb"])
            heaps.add(f"{topic.records:,}", found["heap_mb"])
    few, many = peaks.by_name
    return Table(
        "What records take of the driver's memory",
        ("records of one topic", "peak of the Python process, median", "min", "max", "Java objects after the run"),
        tuple(
            (
                name,
                f"{peaks.median(name):.1f} MB",
                f"{min(values):.1f} MB",
                f"{max(values):.1f} MB",
                f"{heaps.median(name):.1f} MB",
            )
            for name, values in peaks.by_name.items()
        ),
        (
            "Java objects: those left in Spark's JVM after a collection; here this JVM is both driver and executor.",
            verdict("The Python process, of ten times the records", peaks.median(many) - peaks.median(few),
                    RECORDS_MB_MAX, "MB more"),
            verdict("Spark's JVM, of ten times the records", heaps.median(many) - heaps.median(few),
                    RECORDS_MB_MAX, "MB more"),
        ),
    )  # fmt: skip


def _run_child(order: Mapping[str, Any]) -> list[dict[str, float]]:
    return run_child("benchmarks.kafka_planning", order, timeout_s=_CHILD_S_MAX)


def _main() -> None:
    order = json.loads(sys.stdin.read())
    home, bootstrap, topics = Path(order["home"]), order["bootstrap"], order["topics"]
    # A folder for each process, so that two JVMs do not share one.
    spark = open_kafka_session(home / f"spark-{time.monotonic_ns()}")
    try:
        match order["do"]:
            case "time":
                found = _time(home, spark, bootstrap, topics, int(order["runs"]))
            case "memory":
                found = [_grow(home, spark, bootstrap, topics)]
            case "trace":
                found = [_trace(home, spark, bootstrap, topics)]
            case _:
                found = [_read(home, spark, bootstrap, topics[0], int(order["records"]))]
    finally:
        spark.stop()
    print(json.dumps(found))


def _time(
    home: Path, spark: SparkSession, bootstrap: str, topics: Sequence[str], runs: int
) -> list[Mapping[str, float]]:
    found: list[Mapping[str, float]] = []
    known = _remember(home, spark, bootstrap, topics[:1])
    requests = _make_requests(home, topics, known)
    for _run in range(runs):
        gc.collect()
        found.append(_plan(home, spark, bootstrap, requests).spent)
    return found


def _grow(home: Path, spark: SparkSession, bootstrap: str, topics: Sequence[str]) -> dict[str, float]:
    known = _remember(home, spark, bootstrap, topics[:1])
    requests = _make_requests(home, topics, known)
    gc.collect()
    before = resident_mb()
    reset_peak()
    planned = _plan(home, spark, bootstrap, requests)
    assert len(planned.plans) == len(topics)
    return {"grown_mb": peak_mb() - before}


def _trace(home: Path, spark: SparkSession, bootstrap: str, topics: Sequence[str]) -> dict[str, float]:
    known = _remember(home, spark, bootstrap, topics[:1])
    requests = _make_requests(home, topics, known)
    gc.collect()
    tracemalloc.start()
    planned = _plan(home, spark, bootstrap, requests)
    gc.collect()
    held, peak = tracemalloc.get_traced_memory()
    assert len(planned.plans) == len(topics)
    return {"held_mb": held / 1e6, "peak_mb": peak / 1e6}


def _read(home: Path, spark: SparkSession, bootstrap: str, topic: str, records: int) -> dict[str, float]:
    world = reopen_world(home)
    run_once(world, spark, bootstrap, topic, records)
    world.engine.dispose()
    runtime = spark._jvm.java.lang.Runtime.getRuntime()  # noqa: SLF001  PySpark has no public way to it
    runtime.gc()
    return {"peak_mb": peak_mb(), "heap_mb": (runtime.totalMemory() - runtime.freeMemory()) / 1e6}


def _plan(home: Path, spark: SparkSession, bootstrap: str, requests: Sequence[SourceRequest]) -> Planned:
    job = parse_job(_describe(home, [str(request.urn) for request in requests]))
    source = KafkaConnectionResource(bootstrap_servers=bootstrap).open_source(job)
    laps = Laps()
    with ExitStack() as stack:
        session = stack.enter_context(source.open_plan(lambda: spark, lambda _line: None, requests))
        laps.lap(ASK)
        plans = [session.plan(request) for request in requests]
        laps.lap(PLAN)
        units = [unit for plan in plans for unit in plan.work_units]
        tasks = pack_run(job, units, {request.urn: request.spec.split for request in requests})
        laps.lap(PACK)
    if any(unit.is_empty for unit in units) or len(units) != len(requests) * PARTITIONS:
        raise RuntimeError(
            f"expected a WorkUnit for each of {len(requests) * PARTITIONS} partitions, found {len(units)}"
        )
    return Planned(plans, tasks, {**laps.spent, ALL: sum(laps.spent.values())})


def _remember(home: Path, spark: SparkSession, bootstrap: str, topics: Sequence[str]) -> UnitPlan:
    """Plan one topic, so that the first-time work of a process is done; returns its plan."""
    return _plan(home, spark, bootstrap, _make_requests(home, topics, None)).plans[0]


def _make_requests(home: Path, topics: Sequence[str], known: UnitPlan | None) -> list[SourceRequest]:
    """Requests for datasets with watermarks at offset 0. ``known``: a plan whose facts say that topics were seen."""
    datasets = resolve_datasets(parse_job(_describe(home, topics)), None)
    requests = []
    for place, (urn, spec) in enumerate(datasets.items()):
        keys = {
            (name, ""): KeyState(KeyId(place * PARTITIONS + number), name, "", long_watermark(0))
            for number in range(PARTITIONS)
            for name in [f"{urn}:{number}"]
        }
        facts = {} if known is None else {key: value for key, value in known.facts.items() if key != "topic_id"}
        state = DatasetState(DatasetId(place), JobName("bench"), urn, 1, keys, source_facts=facts)
        requests.append(SourceRequest(urn, WHOLE, state, mode=Mode.APPEND, by_hand=False, spec=spec))
    return requests


def _describe(home: Path, topics: Sequence[str]) -> dict[str, Any]:
    return describe_topics(home / "lake", new_job(), [{"topic": topic} for topic in topics])


if __name__ == "__main__":
    _main()
