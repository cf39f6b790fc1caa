"""A whole runner: the product's run on Spark Connect over a Postgres table, in a process of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.ingest.run_values import DatasetReport
from gobblin_assets.ingest.sources.jdbc.connection import JdbcConnection
from gobblin_assets.ingest.spark import connect_server
from gobblin_assets.ingest.spark.extractor import interrupt_attempt
from gobblin_assets.ingest.spark.session import open_session
from gobblin_assets.ingest.spark.settings import SparkSettings
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.state import RunId
from gobblin_assets.state.leases import Holder
from tests.support.ingestion import JOB, Ingestion
from tests.support.spark import SMALL
from tests.torture.home import SPARK_FOLDER
from tests.torture.runner_process import FORKS, Ending, Lines, Process, end_of, live
from tests.torture.schedule import LEASE_TTL_S, Action, RunnerPlan
from tests.torture.small_runner import operate

# Of the one JVM of the torture, on a machine that others may be using.
_MEMORY: Final = "768m"


@dataclass(frozen=True)
class Shop:
    """Where everything is. It is sent to runners as it is."""

    home: str
    database_url: str
    jdbc_url: str
    user: str
    password: str
    urns: tuple[str, ...]

    job: str = JOB

    @property
    def root(self) -> str:
        return f"{self.home}/lake"

    @property
    def events(self) -> Path:
        return Path(self.home, "events.log")

    @property
    def acknowledged(self) -> Path:
        return Path(self.home, "acknowledged.log")

    @property
    def spark_home(self) -> Path:
        return Path(self.home, SPARK_FOLDER)

    def datasets(self) -> Sequence[Mapping[str, Any]]:
        """Small WorkUnits, so that a run has several attempts for a dataset."""
        return [
            {
                "urn": urn,
                "extract": "append_only",
                "watermark": {"column": "number"},
                "split": {"work_unit_rows": 60, "max_partitions": 2, "max_multi_work_units": 2},
            }
            for urn in self.urns
        ]


class _Events(list[DatasetReport]):
    """What was announced, in a file that outlives the runner."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def append(self, report: DatasetReport) -> None:
        assert report.publication is not None
        with self._path.open("a", encoding="ascii") as out:
            out.write(f"{report.publication.sequence_id}\n")


def start_whole_runner(plan: RunnerPlan, shop: Shop, logs: Path) -> Process:
    process = FORKS.Process(target=_work, args=(plan, shop, logs))
    process.start()
    return process


def start_spark(shop: Shop) -> connect_server.ConnectServer:
    """The warm server: the one that answers, or a new one where it was killed."""
    settings = SparkSettings(
        shop.spark_home / "spark",
        master="local[2]",
        conf={**SMALL, "spark.driver.memory": _MEMORY},
        capabilities=("postgres",),
    )
    return connect_server.start(shop.spark_home, settings, _say)


def _say(line: str) -> None:
    print(line, flush=True)


def _work(plan: RunnerPlan, shop: Shop, logs: Path) -> None:
    live(plan, logs, lambda: _act(plan, shop))


def _act(plan: RunnerPlan, shop: Shop) -> Ending:
    remote = start_spark(shop).url
    spark = open_session(SparkSettings(shop.spark_home / "spark", remote=remote, conf=SMALL))
    ingestion = Ingestion(
        spark=spark,
        database_url=shop.database_url,
        connection=JdbcConnection(url=shop.jdbc_url, user=shop.user, password=shop.password, name="shop"),
        root=shop.root,
        datasets=shop.datasets(),
        options={"lease": {"ttl_s": LEASE_TTL_S, "wait_s": plan.lease_wait_s}, "commit_policy": plan.policy},
        remote=remote,
        lines=Lines(),
        events=_Events(shop.events),
    )
    if plan.action in (Action.APPEND, Action.REFRESH):
        mode = Mode.APPEND if plan.action is Action.APPEND else Mode.REFRESH
        chosen: dict[str, list[str | None]] = {shop.urns[number]: [None] for number in plan.datasets}
        return end_of(ingestion.run(chosen, mode=mode), shop.acknowledged)
    clock = SystemClock()
    operations = LogOperations(
        store=ingestion.stores.commits,
        leases=ingestion.stores.leases,
        open_file_system=open_file_system,
        interrupt=lambda attempt: interrupt_attempt(remote, attempt),
        clock=clock,
        holder=Holder(f"torture:{plan.number}", RunId(clock.new_id())),
        report=_say,
        lease_ttl_s=LEASE_TTL_S,
    )
    return operate(plan, ingestion.stores.commits, operations)
