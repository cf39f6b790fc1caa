"""A change log that is written by a model of its table, published step by step, and its base generations."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import Engine

from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.commit.sequence import AttemptRecord, Publication
from gobblin_assets.errors import GobblinError
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.programs import OpenFiles
from gobblin_assets.jobs.sink.base_writing import open_base_writing
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.rows.current_reader import read_current
from gobblin_assets.run.maintenance_run import MaintenanceRun
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.spec.job_parsing import parse_job
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.state.leases import Holder
from tests.support.changed_tables import NoSpark
from tests.support.publishing import JOB, Publisher
from tests.support.table_history import COLUMNS, KEY, TableHistory, Values

LOG = DatasetUrn("public.orders")


@dataclass
class OwnSpark(NoSpark):
    """The test's session."""

    spark: SparkSession

    def get_session(self, job: JobSpec | None = None) -> SparkSession:
        return self.spark


def write_bases(
    spark: SparkSession,
    engine: Engine,
    described: Mapping[str, object],
    specs: Mapping[DatasetUrn, DatasetSpec],
    say: Callable[[str], None],
    *,
    changes_min: int = 1,
    open_files: OpenFiles = open_file_system,
) -> tuple[Sequence[Publication], Mapping[DatasetUrn, GobblinError]]:
    """What ``sink compact`` does with the job that is described."""
    stores = open_stores(engine)

    def interrupt(_attempt: AttemptRecord) -> None:
        """Nothing of it runs elsewhere."""

    holder = Holder("test", RunId(SystemClock().new_id()))
    operations = LogOperations(stores.commits, stores.leases, open_file_system, interrupt, SystemClock(), holder, say)
    writing = open_base_writing(parse_job(described), specs, stores, OwnSpark(spark), say, open_files)
    return writing.carry_out(MaintenanceRun(operations, stores, JOB), list(specs), changes_min=changes_min)


@dataclass
class WrittenLog:
    spark: SparkSession
    publisher: Publisher
    history: TableHistory
    folder: Path
    said: list[str] = field(default_factory=list)
    _published: int = 0

    @property
    def described(self) -> dict[str, object]:
        """Of the job, as its file has it."""
        return {
            "job": str(JOB),
            "source": {"type": "postgres_log", "connection": "shop", "publication": "lake"},
            "destination": str(self.publisher.root),
            "datasets": [{"urn": str(LOG)}],
            "sink": {"bases": {"changes_min": 1, "cron": "0 3 * * *"}},
        }

    def publish(self, *, copy: int = 1, change: Callable[[DataFrame], DataFrame] = lambda frame: frame) -> None:
        """What the model wrote since, as one publication. ``copy``: what the source says of it."""
        number = self.publisher.published
        frame = change(self.spark.read.parquet(self.history.save(self.folder / f"log {number}", since=self._published)))
        self._published = len(self.history.log)
        key = list(KEY) if self.history.has_key else None
        facts = {"postgres_log": {"key": key, "copy": copy}}
        self.publisher.publish(frame, LOG, details={"source_facts": facts})

    def write_base(
        self, *, changes_min: int = 1, open_files: OpenFiles = open_file_system
    ) -> tuple[Sequence[Publication], Mapping[DatasetUrn, GobblinError]]:
        return write_bases(
            *(self.spark, self.publisher.engine, self.described, {LOG: DatasetSpec()}, self.said.append),
            changes_min=changes_min,
            open_files=open_files,
        )

    def read(self) -> DataFrame:
        return read_current(self.spark, LOG, job=JOB, database=self.publisher.engine)

    def difference(self, wanted: Counter[Values] | None = None) -> tuple[list[Values], list[Values]]:
        """What ``read_current`` gives too much, and too little; ``wanted`` None: against the model's rows."""
        expected = self.history.current() if wanted is None else wanted
        found = Counter(
            tuple(row) for row in self.read().select(*(f"`{name.replace('`', '``')}`" for name in COLUMNS)).collect()
        )
        return list((found - expected).elements()), list((expected - found).elements())
