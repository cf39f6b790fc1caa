"""A topic that gets 1,000 records a second: a worker of a sink beside ``stream``, both with a publication a second.

Both processes run all the time, each with a topic of its own. Records come to one of the topics at a time, in turns.
"""

import datetime as dt
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.kafka_world import DDL, PARTITIONS, make_topics, open_broker, to_json
from benchmarks.sink_producer import PacedProducer, SentRecord
from benchmarks.sink_world import (
    JobProcess,
    PublishedVnode,
    SinkJob,
    bound_at_most,
    make_job,
    percentile,
    postgres_s,
    running,
    start_worker,
)
from benchmarks.tables import Options, Samples, Table, in_turns
from benchmarks.world import World

RECORDS_PER_S = 1_000.0
EVERY_S = 1.0
ROUND_S, ROUND_S_QUICK = 12.0, 4.0
WARM_S = 8.0
CPU_SHARE_MAX, DELAY_SHARE_MAX, VISIBLE_S_MAX = 0.2, 0.5, 2.0

_SINK, _STREAM = "sink run", "stream"
_KAFKA = {"value": {"format": "json", "schema": DDL}, "keep": ["partition", "offset"]}
_CPU, _LOG_CPU, _P50, _P95, _VISIBLE = "CPU", "Postgres", "p50", "p95", "visible"


@dataclass(frozen=True, slots=True)
class _Side:
    job: SinkJob
    process: JobProcess
    producer: PacedProducer


def measure(world: World, options: Options) -> list[Table]:
    with open_broker(world) as broker:
        topics = {_SINK: "pace_sink", _STREAM: "pace_stream"}
        make_topics(broker.bootstrap, list(topics.values()), PARTITIONS)
        lanes = {"lanes": PARTITIONS, "every_s": EVERY_S, "roll": {"age_s": 0}}
        sink = make_job(world, broker.bootstrap, topics[_SINK], _KAFKA, sink=lanes)
        stream = make_job(world, broker.bootstrap, topics[_STREAM], _KAFKA, stream={"publish_every_s": EVERY_S})
        processes = [start_worker(sink), JobProcess(stream, "stream", str(stream.file), "--no-dagster")]
        sides = {
            name: _Side(job, process, PacedProducer(broker.bootstrap, topics[name], PARTITIONS, to_json))
            for name, job, process in zip((_SINK, _STREAM), (sink, stream), processes, strict=True)
        }
        with running(processes):
            for side in sides.values():
                _publish(side, WARM_S)
            samples = {name: Samples() for name in sides}
            for name in in_turns(list(sides), options.runs):
                sys.stderr.write(f"  {name} …\n")
                _measure_round(world, sides[name], samples[name], ROUND_S_QUICK if options.quick else ROUND_S)
            for process in processes:
                process.end()
    return [_describe(samples, options)]


def _publish(side: _Side, seconds: float) -> list[SentRecord]:
    before = side.job.count_published()
    sent = side.producer.send(RECORDS_PER_S, seconds)
    side.process.await_that(
        lambda: side.job.count_published() >= before + len(sent), f"the publication of {len(sent):,} records"
    )
    return sent


def _measure_round(world: World, side: _Side, samples: Samples, seconds: float) -> None:
    begun_at, used_s, log_s = dt.datetime.now(dt.UTC), side.process.cpu_s(), postgres_s(world.server)
    sent = _publish(side, seconds)
    samples.add(_CPU, (side.process.cpu_s() - used_s) / len(sent) * 1_000)
    samples.add(_LOG_CPU, (postgres_s(world.server) - log_s) / len(sent) * 1_000)
    published = side.job.list_published(begun_at)
    delays = find_delays(sent, published)
    samples.add(_P50, percentile(delays, 0.5))
    samples.add(_P95, percentile(delays, 0.95))
    visible = [
        (each.done_at - each.barrier_at).total_seconds() for each in published if each.barrier_at and each.row_count
    ]
    if visible:
        samples.add(_VISIBLE, percentile(visible, 0.95))


def find_delays(sent: Sequence[SentRecord], published: Sequence[PublishedVnode]) -> list[float]:
    """Of each record: seconds from its own time until the publication that covers it was DONE."""
    ends: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for each in published:
        ends[each.vnode].append((each.upto, each.done_at.timestamp()))
    for found in ends.values():
        found.sort()
    return [ends[each.vnode][bisect_right(ends[each.vnode], each.offset, key=_end_of)][1] - each.at_s for each in sent]


def _end_of(publication: tuple[int, float]) -> int:
    return publication[0]


def _describe(samples: dict[str, Samples], options: Options) -> Table:
    rows = [
        (
            name,
            *(f"{found.median(value) * 1_000:,.0f} ms" for value in (_CPU, _LOG_CPU)),
            *(f"{found.median(value):.2f} s" for value in (_P50, _P95)),
            f"{found.median(_VISIBLE):.2f} s" if _VISIBLE in found.by_name else "",
        )
        for name, found in samples.items()
    ]
    sink, stream = samples[_SINK], samples[_STREAM]
    return Table(
        f"{RECORDS_PER_S:,.0f} records a second, published each second: a sink's worker beside `stream`",
        ("way", "CPU of 1,000 records", "of Postgres", "record to T3, p50", "p95", "barrier to visible, p95"),
        tuple(rows),
        (
            (
                f"JSON with a schema in {PARTITIONS} partitions, {PARTITIONS} lanes; every barrier is a cut. Medians "
                f"of {options.runs} rounds of {ROUND_S_QUICK if options.quick else ROUND_S:.0f} s, in turns."
            ),
            (
                "CPU: of the command and all of its children, until the round's last record is published. The "
                "broker, Postgres and the producer are apart."
            ),
            "`stream` is warm, and reports nothing to Dagster.",
            bound_at_most("CPU of a record, of stream's", sink.median(_CPU) / stream.median(_CPU), CPU_SHARE_MAX),
            bound_at_most("p50 of record to T3, of stream's", sink.median(_P50) / stream.median(_P50), DELAY_SHARE_MAX),
            bound_at_most("barrier to visible, p95", sink.median(_VISIBLE), VISIBLE_S_MAX, " s"),
        ),
    )
