"""The common parts of runners with Spark: their site, the warm server, and their operations on the log."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from pyspark.sql import SparkSession

from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.state import RunId
from gobblin_assets.run.run_values import DatasetReport
from gobblin_assets.run.stores import Stores
from gobblin_assets.spark import connect_server
from gobblin_assets.spark.cancellation import interrupt_described
from gobblin_assets.spark.session import open_session
from gobblin_assets.spark.spark_settings import SparkSettings
from gobblin_assets.state.leases import Holder
from tests.support.spark import SMALL
from tests.torture.home import SPARK_FOLDER
from tests.torture.runner_process import Ending
from tests.torture.schedule import LEASE_TTL_S, RunnerPlan
from tests.torture.small_runner import operate

# For an arena's one Spark JVM, on a machine that others may be using.
_MEMORY: Final = "768m"


@dataclass(frozen=True)
class Site:
    """The paths and addresses of an arena, sent to runners unchanged. ``capability``: the connector of its source."""

    job: ClassVar[str]
    capability: ClassVar[str]

    home: str
    database_url: str
    urns: tuple[str, ...]

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


class EventsFile(list[DatasetReport]):
    """The announced publications, in a file that outlives the runner."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def append(self, report: DatasetReport) -> None:
        assert report.publication is not None
        with self._path.open("a", encoding="ascii") as out:
            out.write(f"{report.publication.sequence_id}\n")


def start_spark(site: Site) -> connect_server.ConnectServer:
    """The warm server: the one that answers, or a new one if it was killed."""
    settings = SparkSettings(
        site.spark_home / "spark",
        master="local[2]",
        conf={**SMALL, "spark.driver.memory": _MEMORY},
        capabilities=(site.capability,),
    )
    return connect_server.start_connect(site.spark_home, settings, _say)


def open_spark(site: Site) -> tuple[SparkSession, str]:
    """A session of the warm server, and the server's address."""
    remote = start_spark(site).url
    return open_session(SparkSettings(site.spark_home / "spark", remote=remote, conf=SMALL)), remote


def operate_with_spark(plan: RunnerPlan, stores: Stores, remote: str) -> Ending:
    """Operate on the log like a sensor or a person, without a run."""
    clock = SystemClock()
    operations = LogOperations(
        store=stores.commits,
        leases=stores.leases,
        open_file_system=open_file_system,
        interrupt=lambda attempt: interrupt_described(remote, attempt.interruption),
        clock=clock,
        holder=Holder(f"torture:{plan.number}", RunId(clock.new_id())),
        say=_say,
        lease_ttl_s=LEASE_TTL_S,
    )
    return operate(plan, stores.commits, operations)


def _say(line: str) -> None:
    print(line, flush=True)
