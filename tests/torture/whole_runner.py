"""A whole runner: the product's run on Spark Connect over a Postgres table, in a process of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from gobblin_assets.model.extract import Mode
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from tests.support.ingestion import JOB, Ingestion
from tests.torture import children
from tests.torture.runner_process import FORKS, Ending, Lines, Process, end_of, live
from tests.torture.schedule import LEASE_TTL_S, Action, RunnerPlan
from tests.torture.spark_runner import EventsFile, Site, open_spark, operate_with_spark


@dataclass(frozen=True)
class Shop(Site):
    """The site, with the tables that are read."""

    job: ClassVar[str] = JOB
    capability: ClassVar[str] = "postgres"

    jdbc_url: str
    user: str
    password: str

    def datasets(self) -> Sequence[Mapping[str, Any]]:
        """Small WorkUnits, so that a run has several attempts for a dataset."""
        return [
            {
                "urn": urn,
                "extract": "append_only",
                "watermark": {"column": "number"},
                "split": {"work_unit_rows": 60, "max_partitions": 2, "max_multi_work_units": 2, "task_rows_min": 1},
            }
            for urn in self.urns
        ]


def start_whole_runner(plan: RunnerPlan, shop: Shop, logs: Path) -> Process:
    return children.start(FORKS.Process(target=_work, args=(plan, shop, logs)))


def _work(plan: RunnerPlan, shop: Shop, logs: Path) -> None:
    live(plan, logs, lambda: _act(plan, shop))


def _act(plan: RunnerPlan, shop: Shop) -> Ending:
    spark, remote = open_spark(shop)
    ingestion = Ingestion(
        spark=spark,
        database_url=shop.database_url,
        connection=JdbcConnection(url=shop.jdbc_url, user=shop.user, password=shop.password, name="shop"),
        root=shop.root,
        datasets=shop.datasets(),
        options={"lease": {"ttl_s": LEASE_TTL_S, "wait_s": plan.lease_wait_s}, "commit_policy": plan.policy},
        remote=remote,
        lines=Lines(),
        events=EventsFile(shop.events),
    )
    if plan.action in (Action.APPEND, Action.REFRESH):
        mode = Mode.APPEND if plan.action is Action.APPEND else Mode.REFRESH
        chosen: dict[str, list[str | None]] = {shop.urns[number]: [None] for number in plan.datasets}
        return end_of(ingestion.run(chosen, mode=mode), shop.acknowledged)
    return operate_with_spark(plan, ingestion.stores, remote)
