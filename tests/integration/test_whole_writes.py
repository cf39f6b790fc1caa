"""Rows read = rows in data, quarantine and dead letters, or nothing is sealed: on Spark, with lost files."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from demo.kafka.broker import KafkaBroker
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.jobs.ingest import extractor
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.observation import ObservedPositions
from gobblin_assets.rows.parquet_writer import WrittenDirectory
from gobblin_assets.spark.connect_server import ConnectServer
from tests.support.ingestion import Ingestion
from tests.support.kafka import MakeTopic, Record, produce
from tests.support.postgres import Database
from tests.support.shares import OFTEN_SHARES
from tests.support.shop import connection_of
from tests.support.spark import in_child, open_remote
from tests.support.topics import Open

pytestmark = pytest.mark.turns(of=4)

ORDERS: dict[str, Any] = {
    "urn": "public.orders",
    "extract": "append_only",
    "watermark": {"column": "id"},
    "quality": {"rows": [{"name": "even", "check": "id % 2 = 0", "on_failure": "err_file"}]},
}
ROWS = 40

Collect = Callable[[FileSystem, str], Sequence[WrittenDirectory]]


@pytest.fixture
def shop(fresh_database: Database) -> Database:
    with fresh_database.connect() as connection:
        connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
        connection.execute("INSERT INTO orders SELECT n, 'n' || n FROM generate_series(1, %s) n", (ROWS,))
    return fresh_database


@pytest.fixture
def ingestion(spark: SparkSession, database_url: str, shop: Database, tmp_path: Path) -> Iterator[Ingestion]:
    made = Ingestion(spark, database_url, connection_of(shop), str(tmp_path / "lake"), [ORDERS])
    yield made
    made.close()


def losing(collect: Collect, kind: str, times: int = 1) -> Collect:
    """A file system that forgets a file of a write: the first whose path has ``kind`` in it."""
    left = [times]

    def lose(fs: FileSystem, directory: str) -> Sequence[WrittenDirectory]:
        found = sorted(path for path in Path(directory).rglob("*.parquet") if kind in str(path))
        if found and left[0] > 0:
            left[0] -= 1
            found[0].unlink()
        return collect(fs, directory)

    return lose


def unobserved(_self: ObservedPositions) -> None:
    """Connect's answer when its server was too busy."""


@pytest.mark.parametrize("kind", ["gobblin_role=data", "gobblin_role=quarantine"])
@pytest.mark.parametrize("is_observed", [True, False], ids=["observed", "counted again"])
@pytest.mark.rotating(of=OFTEN_SHARES)
def test_a_write_that_lost_a_file_is_never_sealed(
    ingestion: Ingestion, monkeypatch: pytest.MonkeyPatch, kind: str, is_observed: bool
) -> None:
    if not is_observed:
        monkeypatch.setattr(ObservedPositions, "get", unobserved)
    with monkeypatch.context() as patched:
        patched.setattr(extractor, "collect_output", losing(extractor.collect_output, kind))
        (lost,) = ingestion.run().datasets
    assert f"{ROWS} rows were read, and the files that were written hold 20 " in str(lost.error)
    assert lost.error_family == "RetryableError"
    assert ingestion.events == []

    (whole,) = ingestion.run().datasets

    assert whole.error is None
    assert ingestion.rows("public.orders", "id") == Counter((n,) for n in range(2, ROWS + 1, 2))
    assert ingestion.rows("public.orders", "id", role=Role.QUARANTINE) == Counter((n,) for n in range(1, ROWS, 2))


def test_the_next_try_of_a_task_writes_what_the_first_lost(
    ingestion: Ingestion, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingestion.options = {"retry": {"back_off_s": 0.0, "task_tries_max": 2}}
    monkeypatch.setattr(extractor, "collect_output", losing(extractor.collect_output, ".parquet"))

    (report,) = ingestion.run().datasets

    assert report.error is None
    assert any("try 1 failed" in line and "hold 20" in line for line in ingestion.lines), ingestion.lines
    read = ingestion.rows("public.orders", "id") + ingestion.rows("public.orders", "id", role=Role.QUARANTINE)
    assert read == Counter((n,) for n in range(1, ROWS + 1))


@pytest.mark.parametrize("is_observed", [True, False], ids=["observed", "counted again"])
@pytest.mark.rotating(of=OFTEN_SHARES)
def test_what_a_converter_takes_out_is_not_missing(
    ingestion: Ingestion, monkeypatch: pytest.MonkeyPatch, is_observed: bool
) -> None:
    if not is_observed:
        monkeypatch.setattr(ObservedPositions, "get", unobserved)
    ingestion.datasets = [{**ORDERS, "converters": [{"where": "id <= 10"}]}]

    (report,) = ingestion.run().datasets

    assert report.error is None
    assert ingestion.rows("public.orders", "id") == Counter((n,) for n in range(2, 11, 2))


def _run_on_connect(server: ConnectServer, database_url: str, connection: Any, root: str) -> list[Any]:
    spark = open_remote(server)
    made = Ingestion(spark, database_url, connection, root, [ORDERS], remote=server.url)
    collect = extractor.collect_output
    found: list[Any] = []
    try:
        extractor.collect_output = losing(collect, "=data")
        found.append(str(made.run().datasets[0].error))
        extractor.collect_output = collect
        ObservedPositions.get = unobserved  # type: ignore[assignment,method-assign]  # in a process of its own
        found += [made.run().datasets[0].error, made.read("public.orders").count()]
    finally:
        made.close()
        spark.stop()
    return found


@pytest.mark.turns("rows on Spark Connect")
def test_rows_are_counted_on_connect(connect: ConnectServer, database_url: str, shop: Database, tmp_path: Path) -> None:
    lost, error, rows = in_child(_run_on_connect, connect, database_url, connection_of(shop), str(tmp_path / "lake"))
    assert f"{ROWS} rows were read, and the files that were written hold 20 " in lost
    assert (error, rows) == (None, ROWS // 2)


@pytest.mark.parametrize("converters", [[], [{"where": "id >= 2 or id is null"}]], ids=["all", "where"])
def test_of_topics_that_are_read_together_each_is_counted(
    ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch, converters: list[Any]
) -> None:
    names = [topic("counted") for _ in range(3)]
    for name in names:
        produce(
            kafka_broker.bootstrap, name, [*(b'{"id": %d}' % number for number in range(8)), b"broken", Record(None)]
        )
    more = {
        "kafka": {"value": {"format": "json", "schema": "id bigint"}, "on_tombstone": "drop"},
        "converters": converters,
        "quality": {"dead_letter_fraction_max": 0.5},
        "split": {"max_multi_work_units": 1},
    }
    ingestion = ingest(*({"topic": name, **more} for name in names))
    monkeypatch.setattr(extractor, "collect_output", losing(extractor.collect_output, f"={names[1]}/"))

    report = ingestion.run()

    assert not report.failed, report.failed
    told = [line for line in ingestion.lines if "is read again by itself" in line]
    assert len(told) == 1, ingestion.lines
    assert told[0].startswith(f"{names[1]}: ")
    first = 2 if converters else 0
    for name in names:
        assert ingestion.rows(name, "id") == Counter((n,) for n in range(first, 8))
        assert ingestion.read(name, role=Role.DEAD_LETTER).count() == 1
