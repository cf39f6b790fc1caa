"""Tables of Postgres that are read without Spark: which ones, the reasons for the others, and reads that end early."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from gobblin_assets import SparkEngine, run_job
from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.jobs.ingest.arrow_worker import ArrowWorker
from gobblin_assets.jobs.ingest.ingest_kind import IngestKind
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import WHOLE
from gobblin_assets.model.state import AttemptId, DatasetId, DatasetOutcome
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.watermark import WatermarkType
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.run.job_kind import PlanRequest, UnitPlan, Worker, WorkOrder
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.postgres import CLIENT_GONE_S, open_postgres
from gobblin_assets.sources.jdbc.postgres_arrow import ReaderConnections
from gobblin_assets.sources.jdbc.source import JdbcSource
from gobblin_assets.sources.source_port import ArrowReader, ArrowRows, read_plan_of
from gobblin_assets.spec.job_parsing import parse_job, resolve_datasets
from tests.support.jdbc import new_state
from tests.support.postgres import Database

pytestmark = pytest.mark.turns(of=4)

WAIT_S_MAX = 150
T = DatasetUrn("public.t")
COPIES = """
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND query LIKE 'COPY%' AND state = 'active'"""


def connection_to(database: Database) -> JdbcConnection:
    return JdbcConnection(url=database.jdbc_url, user=database.user, password=database.password, name="c")


def describe(folder: Path, *datasets: Mapping[str, Any], **source: Any) -> dict[str, Any]:
    return {
        "job": "tables",
        "source": {"connection": "shop", **source},
        "destination": str(folder / "lake"),
        "retry": {"task_tries_max": 1, "back_off_s": 0},
        "datasets": list(datasets),
    }


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fresh_database: Database, database_url: str) -> None:
    """Variables of a run whose log is in one database, and whose source is another."""
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_JDBC_SHOP_URL", fresh_database.jdbc_url)
    monkeypatch.setenv("GOBBLIN_JDBC_SHOP_USER", fresh_database.user)
    monkeypatch.setenv("GOBBLIN_JDBC_SHOP_PASSWORD", fresh_database.password)


def no_spark() -> Any:
    raise AssertionError("Spark was asked for")


def plan(database: Database, job: Mapping[str, Any], *, with_arrow: bool = True, only_moves: bool = False) -> UnitPlan:
    """The plan of the job's only dataset; its session is closed."""
    spec = parse_job(job)
    datasets = resolve_datasets(spec, None)
    (urn,) = datasets

    def open_arrow() -> Worker:
        return ArrowWorker(PosixFileSystem())

    source = JdbcSource(connection_to(database), spec.source)
    kind = IngestKind(datasets, source, no_spark, no_spark, open_arrow=open_arrow if with_arrow else None)
    request = PlanRequest(urn, WHOLE, new_state(urn), Mode.AUTO, by_hand=False, only_moves=only_moves)
    with kind.open(lambda _line: None, [request]) as session:
        return session.plan(request)


def test_a_source_that_would_read_rows_is_not_moved(fresh_database: Database, tmp_path: Path) -> None:
    """Rows that go elsewhere than into files are not written into files by a run that only moves positions."""
    with fresh_database.connect() as sql:
        sql.execute("CREATE TABLE t AS SELECT n FROM generate_series(1, 50) n")
    with pytest.raises(RejectedError, match="can't be moved without reading it"):
        plan(fresh_database, describe(tmp_path, {"table": "public.t"}), only_moves=True)


# What a run without Spark never needs, and what takes long to import.
_PROGRAM = """
import sys
from gobblin_assets.cli import main
main(["run", sys.argv[1], "--no-dagster"], standalone_mode=False)
sys.exit(str([name for name in ("pandas", "dagster", "alembic", "grpc", "pyspark.sql.connect") if name in sys.modules]))
"""


@pytest.mark.usefixtures("environment")
class TestRuns:
    def test_a_run_that_publishes_imports_nothing_that_it_does_not_need(
        self, fresh_database: Database, tmp_path: Path
    ) -> None:
        with fresh_database.connect() as sql:
            sql.execute("CREATE TABLE t AS SELECT n FROM generate_series(1, 50) n")
        job = tmp_path / "job.yaml"
        job.write_text(yaml.safe_dump(describe(tmp_path, {"table": "public.t"})), encoding="utf-8")
        done = subprocess.run([sys.executable, "-c", _PROGRAM, str(job)], capture_output=True, text=True)
        assert "COMMITTED" in done.stdout, done.stderr
        assert "Arrow reads 1 of 1 dataset partitions in this process" in done.stderr
        assert done.stderr.splitlines()[-1] == "[]"

    def test_tables_are_published_without_spark_and_appended_to(self, fresh_database: Database, tmp_path: Path) -> None:
        with fresh_database.connect() as sql:
            for number in range(12):
                sql.execute(f"CREATE TABLE t{number} (id int PRIMARY KEY, note text)".encode())
                sql.execute(f"INSERT INTO t{number} SELECT n, 'x' || n FROM generate_series(1, 50) n".encode())
        tables = [
            {"table": f"public.t{number}", "extract": "append_only", "watermark": {"column": "id"}}
            for number in range(12)
        ]
        engine = SparkEngine()
        job = describe(tmp_path, *tables)
        assert not run_job(job, spark=engine).failed
        with fresh_database.connect() as sql:
            sql.execute("INSERT INTO t3 VALUES (51, 'late')")
        again = run_job(job, spark=engine)

        assert not engine.has_session
        counts = {each.urn: each.publication.row_count for each in again.datasets if each.publication is not None}
        assert {urn: count for urn, count in counts.items() if count} == {"public.t3": 1}
        found = [row for path in (tmp_path / "lake").rglob("*.parquet") for row in pq.read_table(path).to_pylist()]
        assert sorted(row["id"] for row in found) == sorted([*range(1, 51)] * 12 + [51])

    def test_one_that_fails_among_many_is_found_and_the_others_are_published(
        self, fresh_database: Database, tmp_path: Path
    ) -> None:
        with fresh_database.connect() as sql:
            for number in range(5):
                sql.execute(f"CREATE TABLE t{number} (id int, day date)".encode())
                sql.execute(f"INSERT INTO t{number} VALUES (1, '2020-01-01')".encode())
            sql.execute("INSERT INTO t2 VALUES (2, 'infinity')")
        report = run_job(describe(tmp_path, *({"table": f"public.t{number}"} for number in range(5))))

        (failed,) = report.failed
        assert failed.urn == "public.t2"
        assert "public.t2.day (date) holds infinity" in (failed.error or "")
        outcomes = [each.outcome for each in report.datasets if each.urn != "public.t2"]
        assert outcomes == [DatasetOutcome.COMMITTED] * 4


class TestChoice:
    @pytest.fixture(autouse=True)
    def table(self, fresh_database: Database) -> None:
        with fresh_database.connect() as sql:
            sql.execute("CREATE TABLE t (id int PRIMARY KEY, at timestamptz NOT NULL)")
            sql.execute("INSERT INTO t SELECT n, now() - interval '1 day' FROM generate_series(1, 100) n")
            sql.execute("ANALYZE t")

    @pytest.mark.parametrize(
        "options",
        [
            {"converters": [{"sql": {"id": "id + 1"}}]},
            {"quality": {"rows": [{"name": "positive", "check": "id > 0"}]}},
            {"writer": {"partition_by": ["id"]}},
            {"writer": {"time_column": "at", "time_pattern": "yyyy-MM-dd"}},
        ],
        ids=lambda options: next(iter(options)),
    )
    def test_what_needs_spark_gets_it_or_is_refused(
        self, fresh_database: Database, tmp_path: Path, options: dict[str, Any]
    ) -> None:
        dataset = {"table": "public.t", **options}
        found = plan(fresh_database, describe(tmp_path, dataset))
        assert (read_plan_of(found).arrow, found.sharing) == (None, None)
        with pytest.raises(RejectedError, match=r"source\.reader: public\.t has .*, which needs Spark"):
            plan(fresh_database, describe(tmp_path, dataset, reader="arrow"))

    def test_a_plain_table_is_read_by_arrow_up_to_a_bound_unless_jdbc_is_asked_for(
        self, fresh_database: Database, tmp_path: Path
    ) -> None:
        def is_by_arrow(**source: Any) -> bool:
            found = plan(fresh_database, describe(tmp_path, {"table": "public.t"}, **source))
            return read_plan_of(found).arrow is not None

        assert is_by_arrow()
        assert is_by_arrow(arrow_rows_max=100)
        assert not is_by_arrow(arrow_rows_max=99)
        assert is_by_arrow(arrow_rows_max=99, reader="arrow")
        assert not is_by_arrow(reader="jdbc")
        only_spark = plan(fresh_database, describe(tmp_path, {"table": "public.t"}), with_arrow=False)
        assert read_plan_of(only_spark).arrow is None

    def test_a_database_that_arrow_does_not_read_is_refused_only_if_arrow_is_asked_for(self) -> None:
        spec = parse_job(describe(Path("/lake"), {"table": "t"}, reader="arrow"))
        source = JdbcSource(JdbcConnection(url="jdbc:sqlite:/nowhere.db", name="c"), spec.source)
        with (
            pytest.raises(RejectedError, match=r"source\.reader: SQLite is read by JDBC alone"),
            source.open_plan(no_spark, print),
        ):
            pass


def test_sessions_end_soon_after_their_client_s_process_or_machine(fresh_database: Database) -> None:
    names = ("client_connection_check_interval", "tcp_keepalives_idle", "tcp_keepalives_count")
    query = f"SELECT {', '.join(f'current_setting({name!r}) AS {name}' for name in names)}"
    connection = connection_to(fresh_database)
    with open_postgres(connection, 60) as catalog:
        planning = catalog.fetch_row(query, [WatermarkType.STRING] * len(names))
        readers = ReaderConnections(connection, catalog.list_reader_statements())
        with readers.take() as reader, reader.read(query) as (batches, _interrupt):
            (row,) = [row for batch in batches for row in batch.to_pylist()]
        readers.close()
    assert list(planning) == list(row.values()) == [f"{CLIENT_GONE_S}s", "30", "3"]


@dataclass(frozen=True)
class EndedReader:
    """``ArrowReader`` over another one, whose reading is told to end at the moment before its query is sent."""

    reader: ArrowReader
    end: Callable[[], None]

    @property
    def columns(self) -> Sequence[tuple[str, str]]:
        return self.reader.columns

    @contextmanager
    def open(self, unit: WorkUnit) -> Iterator[ArrowRows]:
        with self.reader.open(unit) as rows:
            yield ArrowRows(self._end_before(rows.batches), rows.interrupt)

    def explain(self, error: Exception) -> GobblinError:
        return self.reader.explain(error)

    def _end_before(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self.end()
        yield from batches


class TestEnds:
    """A read of some 15 minutes, since each row takes a hundredth of a second."""

    @pytest.fixture
    def order(self, fresh_database: Database, tmp_path: Path) -> Iterator[WorkOrder]:
        with fresh_database.connect() as sql:
            sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
            sql.execute("INSERT INTO t SELECT generate_series(1, 100000)")
        job = parse_job(describe(tmp_path, {"table": "public.t", "where": "pg_sleep(0.01) IS NOT NULL"}))
        source = JdbcSource(connection_to(fresh_database), job.source)
        kind = IngestKind(resolve_datasets(job, None), source, no_spark, no_spark, open_arrow=no_spark)
        request = PlanRequest(T, WHOLE, new_state(T), Mode.AUTO, by_hand=False)
        with kind.open(lambda _line: None, [request]) as session:
            yield order_of(session.plan(request), tmp_path)

    def test_one_that_is_cancelled_ends_at_once_with_its_connection(
        self, order: WorkOrder, fresh_database: Database
    ) -> None:
        worker = ArrowWorker(PosixFileSystem())
        with fresh_database.connect() as sql, self.failing(worker, order):
            while sql.execute(COPIES).fetchone() == (0,):
                pass
            worker.cancel(order.tag)
        self.require_no_copies(fresh_database)

    def test_one_that_is_cancelled_before_it_begins_does_not_begin(
        self, order: WorkOrder, fresh_database: Database
    ) -> None:
        worker = ArrowWorker(PosixFileSystem())
        worker.cancel(order.tag)
        with self.failing(worker, order):
            pass
        self.require_no_copies(fresh_database)

    def test_one_that_is_cancelled_just_before_its_query_ends_too(
        self, order: WorkOrder, fresh_database: Database
    ) -> None:
        worker = ArrowWorker(PosixFileSystem())
        found = read_plan_of(order.plan)
        assert found.arrow is not None
        reader = EndedReader(found.arrow, lambda: worker.cancel(order.tag))
        ended = replace(order, plan=replace(order.plan, payload=replace(found, arrow=reader)))
        with self.failing(worker, ended):
            pass
        self.require_no_copies(fresh_database)

    @contextmanager
    def failing(self, worker: ArrowWorker, order: WorkOrder) -> Iterator[None]:
        """The order is done by another thread, and fails by the end of the block, or soon after."""
        with ThreadPoolExecutor(1) as pool:
            doing = pool.submit(worker.do, order)
            yield
            with pytest.raises(RetryableError):
                doing.result(WAIT_S_MAX)

    def require_no_copies(self, database: Database) -> None:
        limit = time.monotonic() + WAIT_S_MAX
        with database.connect() as sql:
            while sql.execute(COPIES).fetchone() != (0,):
                assert time.monotonic() < limit, "the reader's query is still there"


def order_of(found: UnitPlan, folder: Path) -> WorkOrder:
    attempt = AttemptId(SystemClock().new_id())
    return WorkOrder(
        job=JobName("tables"),
        dataset_id=DatasetId(1),
        plan=found,
        units=found.work_units,
        attempt_id=attempt,
        directory=str(folder / str(attempt)),
        started_at=SystemClock().now(),
        tag=str(attempt),
    )
