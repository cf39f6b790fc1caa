"""A topic runner: the product's run or stream on Spark Connect over Kafka topics, in a process of its own."""

import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from gobblin_assets.model.extract import Mode
from tests.support.topics import JOB, Ingestion
from tests.torture import children
from tests.torture.runner_process import FORKS, Ending, Lines, Process, end_of, live
from tests.torture.schedule import LEASE_TTL_S, Action, RunnerPlan
from tests.torture.spark_runner import EventsFile, Site, open_spark, operate_with_spark

# A record has its dataset and its number.
SCHEMA: Final = {"value": {"format": "json", "schema": "number bigint, value string"}}
# Long enough to look at the brokers, and short enough for several publications before a stream's end.
_PUBLISH_EVERY_S: Final = 0.5
# A stream backs off after a failure, and must go on before its time is over.
_RETRY: Final = {"back_off_s": 0.2, "back_off_max_s": 1.0, "task_tries_max": 2}


@dataclass(frozen=True)
class Topics(Site):
    """The site, with the broker that is read."""

    job: ClassVar[str] = JOB
    capability: ClassVar[str] = "kafka"

    bootstrap: str

    def datasets(self) -> Sequence[Mapping[str, Any]]:
        """All topics except the last are read together; the last has several attempts of its own."""
        together = {"max_multi_work_units": 1}
        alone = {"work_unit_rows": 40, "max_partitions": 3, "max_multi_work_units": 3, "task_rows_min": 1}
        return [
            {"topic": urn, "kafka": SCHEMA, "split": alone if urn == self.urns[-1] else together} for urn in self.urns
        ]


def start_topic_runner(plan: RunnerPlan, topics: Topics, logs: Path) -> Process:
    return children.start(FORKS.Process(target=_work, args=(plan, topics, logs)))


def _work(plan: RunnerPlan, topics: Topics, logs: Path) -> None:
    stopping = threading.Event()
    if plan.action is Action.STREAM:
        signal.signal(signal.SIGTERM, lambda _number, _frame: stopping.set())
    live(plan, logs, lambda: _act(plan, topics, stopping))


def _act(plan: RunnerPlan, topics: Topics, stopping: threading.Event) -> Ending:
    spark, remote = open_spark(topics)
    ingestion = Ingestion(
        spark=spark,
        database_url=topics.database_url,
        bootstrap=topics.bootstrap,
        root=topics.root,
        datasets=topics.datasets(),
        options={
            "lease": {"ttl_s": LEASE_TTL_S, "wait_s": plan.lease_wait_s},
            "commit_policy": plan.policy,
            "retry": _RETRY,
            "stream": {"publish_every_s": _PUBLISH_EVERY_S},
        },
        remote=remote,
        lines=Lines(),
        events=EventsFile(topics.events),
    )
    urns = [topics.urns[number] for number in plan.datasets]
    match plan.action:
        case Action.STREAM:
            return end_of(ingestion.stream(stopping.wait, *urns), topics.acknowledged)
        case Action.APPEND | Action.REFRESH:
            mode = Mode.APPEND if plan.action is Action.APPEND else Mode.REFRESH
            return end_of(ingestion.run(*urns, mode=mode), topics.acknowledged)
        case _:
            return operate_with_spark(plan, ingestion.stores, remote)
