"""The size of a topic's WorkUnit when it is packed, by statistics that earlier runs left. Pure.

Loads are millionths of the estimator's unit: WorkUnits, MB, seconds, or MB/s. Statistics are kept in the dataset's
facts as slowly moving averages, so they stay small however many runs there were.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.run.job_kind import TaskFigures
from gobblin_assets.sources.kafka.kafka_kind import KafkaSourceSpec, SizeEstimator

RECORD_BYTES_FACT: Final = "record_bytes"
RECORD_TIME_FACT: Final = "record_time_ms"
TASK_RATES_FACT: Final = "task_rates"
PRODUCED_FACT: Final = "produced"
STATISTICS_FACTS: Final = frozenset({RECORD_BYTES_FACT, RECORD_TIME_FACT, TASK_RATES_FACT, PRODUCED_FACT})

RECORD_BYTES: Final = 1_024
"""The size of a record of a topic that has not been read before: Gobblin's own default."""

RECORD_TIME_MS: Final = 1.0
"""The time of such a record, where no other topic is known either."""

MILLION: Final = 1_000_000

TASK_RATES_MAX: Final = 8
"""How many tasks' rates a topic remembers."""

_NEWEST_SHARE: Final = 0.3
_INTERVAL_S_MIN: Final = 1.0
# A shorter time measures the clock more than the task.
_DURATION_S_MIN: Final = 0.001


@dataclass(frozen=True, slots=True)
class Sizes:
    """The estimates of one topic in one run. ``rates`` are records per second, by partition."""

    estimator: SizeEstimator
    record_bytes: float = RECORD_BYTES
    record_time_ms: float = RECORD_TIME_MS
    rates: Mapping[int, float] | None = None
    catch_up_sla_hours: float = 1.0
    produce_rate_scaling: float = 1.3

    def estimate_bytes(self, offsets: int) -> int:
        return round(offsets * self.record_bytes)

    def estimate_load(self, partition: int, offsets: int, *, share: float) -> int:
        """The load for packing; ``share`` is this WorkUnit's part of what is produced to its partition."""
        match self.estimator:
            case SizeEstimator.UNIT:
                return MILLION
            case SizeEstimator.AVERAGE_RECORD_SIZE:
                return self.estimate_bytes(offsets)
            case SizeEstimator.AVERAGE_RECORD_TIME:
                return round(offsets * self.record_time_ms * 1_000)
            case SizeEstimator.PRODUCE_RATE:
                # The rate that reads the lag within the time allowed, plus the rate of production, scaled up a bit.
                behind = offsets * self.record_bytes / (self.catch_up_sla_hours * 3_600)
                produced = (self.rates or {}).get(partition, 0.0) * share * self.record_bytes
                return round(behind + produced * self.produce_rate_scaling)


def recall_sizes(source: KafkaSourceSpec, facts: Mapping[str, object], *, others_time_ms: float) -> Sizes:
    """``others_time_ms`` is the time of a record of a topic that has not been read yet."""
    return Sizes(
        estimator=source.size_estimator,
        record_bytes=_find_positive(facts, RECORD_BYTES_FACT) or RECORD_BYTES,
        record_time_ms=_find_positive(facts, RECORD_TIME_FACT) or others_time_ms,
        rates={number: rate for number, (_end, rate) in _read_produced(facts)[1].items() if rate is not None},
        catch_up_sla_hours=source.catch_up_sla_hours,
        produce_rate_scaling=source.produce_rate_scaling,
    )


def average_record_time_ms(all_facts: Sequence[Mapping[str, object]]) -> float:
    """The geometric mean over the topics that have been read; 1.0 if there is none."""
    known = [found for facts in all_facts if (found := _find_positive(facts, RECORD_TIME_FACT)) is not None]
    return statistics.geometric_mean(known) if known else RECORD_TIME_MS


def recall_task_rates(facts: Mapping[str, object]) -> tuple[int, ...]:
    """The rates that tasks of the topic achieved, in bytes per second: the load that one task can bear."""
    found = facts.get(TASK_RATES_FACT)
    return tuple(rate for rate in found if isinstance(rate, int) and rate > 0) if isinstance(found, list) else ()


def track_production(
    facts: Mapping[str, object], ends: Mapping[int, int], names: Sequence[int], *, now_s: float
) -> dict[str, object]:
    """The facts with the produce rates of all partitions, by how far their ends have moved since the previous plan.

    ``now_s`` is in seconds since 1970. A partition whose end is unknown or has gone back keeps its rate.
    """
    before_s, known = _read_produced(facts)
    interval_s = None if before_s is None else now_s - before_s
    if interval_s is not None and 0 <= interval_s < _INTERVAL_S_MIN:
        return dict(facts)
    rows: dict[str, object] = {}
    for number in names:
        end_before, rate = known.get(number, (None, None))
        end = ends.get(number)
        if end is not None and end_before is not None and end >= end_before and interval_s is not None:
            rate = _follow(rate, (end - end_before) / interval_s) if interval_s > 0 else rate
        rows[str(number)] = [end, None if rate is None else _shorten(rate)]
    return {**facts, PRODUCED_FACT: {"at": round(now_s, 3), "partitions": rows}}


def learn_sizes(facts: Mapping[str, object], tasks: Sequence[TaskFigures]) -> dict[str, object]:
    """The facts with what the run's tasks showed: bytes per offset, time per offset, and bytes per second."""
    useful = [task for task in tasks if task.estimated_row_count > 0 and task.duration_s >= _DURATION_S_MIN]
    learned = dict(facts)
    if not useful:
        return learned
    file_bytes = sum(task.file_bytes for task in useful) / sum(task.estimated_row_count for task in useful)
    if file_bytes > 0:
        learned[RECORD_BYTES_FACT] = _shorten(_follow(_find_positive(facts, RECORD_BYTES_FACT), file_bytes))
    time_ms = statistics.geometric_mean([1_000 * task.duration_s / task.estimated_row_count for task in useful])
    learned[RECORD_TIME_FACT] = _shorten(_follow(_find_positive(facts, RECORD_TIME_FACT), time_ms))
    rates = [round(task.file_bytes / task.duration_s) for task in useful]
    learned[TASK_RATES_FACT] = [*recall_task_rates(facts), *(rate for rate in rates if rate > 0)][-TASK_RATES_MAX:]
    return learned


def _follow(before: float | None, now: float) -> float:
    return now if before is None else before + _NEWEST_SHARE * (now - before)


def _shorten(number: float) -> float:
    """Rounded to four digits: an estimate has no more."""
    return float(f"{number:.4g}")


def _find_positive(facts: Mapping[str, object], name: str) -> float | None:
    return _as_number(facts.get(name)) or None


def _read_produced(facts: Mapping[str, object]) -> tuple[float | None, dict[int, tuple[int | None, float | None]]]:
    found = facts.get(PRODUCED_FACT)
    if not isinstance(found, dict):
        return None, {}
    rows = found.get("partitions")
    known: dict[int, tuple[int | None, float | None]] = {}
    for name, row in rows.items() if isinstance(rows, dict) else ():
        match row:
            case [int() | None as end, float() | int() | None as rate] if str(name).isdecimal():
                known[int(name)] = (end, _as_number(rate))
            case _:
                continue
    return _as_number(found.get("at")), known


def _as_number(found: object) -> float | None:
    right = isinstance(found, int | float) and math.isfinite(found) and found >= 0
    return float(found) if right and isinstance(found, int | float) else None
