"""Runs on a standalone cluster, whose workers are processes with an environment, and mounts, of their own."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from gobblin_assets.db.tables import work_unit
from gobblin_assets.errors import GobblinError
from gobblin_assets.jobs.ingest.spark_engine import SparkEngine
from gobblin_assets.jobs.job_runs import run_job
from gobblin_assets.spark import connect_server
from gobblin_assets.spark.errors import spark_families
from gobblin_assets.spark.spark_settings import SparkSettings
from tests.integration.test_end_to_end import source_rows
from tests.support.ingestion import Ingestion, run_in_child, start_in_child
from tests.support.postgres import Database
from tests.support.shop import CUSTOMERS, ingestion, shop
from tests.support.spark import in_child, wait_until
from tests.support.spark_cluster import SMALL_EXECUTORS, SparkCluster, hiding, spark_cluster

__all__ = ["ingestion", "shop"]

WAIT_S = 8.0
NUMBERS, SLOTS = 1_000_000, 9
TRIES_MAX = 5


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def on_cluster(
    cluster: SparkCluster, ingestion: Ingestion, shop: Database, tmp_path: Path, **more: object
) -> Mapping[str, Any]:
    return {
        "work": str(tmp_path / "spark"),
        "master": cluster.url,
        "conf": SMALL_EXECUTORS,
        "database_url": ingestion.database_url,
        "connection": {"url": shop.jdbc_url, "user": shop.user, "password": shop.password, "name": "shop"},
        "root": ingestion.root,
        "datasets": [CUSTOMERS],
        "options": {"retry": {"back_off_s": 0.0, "task_tries_max": 3}},
        **more,
    }


@pytest.mark.turns("what Spark meets", of=8)
def test_executors_that_don_t_see_the_staging_are_refused_before_anything_is_written(
    cluster: SparkCluster, ingestion: Ingestion, shop: Database, tmp_path: Path
) -> None:
    root = Path(ingestion.root)
    root.mkdir(parents=True, exist_ok=True)
    settings = on_cluster(cluster, ingestion, shop, tmp_path)
    pid = cluster.start_worker("blind", hidden=root)
    try:
        refused = run_in_child(tmp_path, settings)
        assert list(Path(f"/proc/{pid}/root/{root}").iterdir()) == []
    finally:
        cluster.stop("blind")

    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert "can't see" in refused.stdout
    assert "Nothing was written" in refused.stdout
    assert not list(root.rglob("*.parquet"))
    assert not list(root.rglob(".seen-*"))

    cluster.start_worker("seeing")
    done = run_in_child(tmp_path, settings)
    cluster.stop("seeing")

    assert done.returncode == 0, done.stdout + done.stderr
    assert ingestion.rows("public.customers") == source_rows(shop, "SELECT id, name FROM customers")


@pytest.mark.turns("what Spark meets", of=8)
def test_an_executor_that_joins_while_rows_are_written_and_is_blind_is_named(
    cluster: SparkCluster, ingestion: Ingestion, shop: Database, tmp_path: Path
) -> None:
    root = Path(ingestion.root)
    # Each row takes its query five seconds; one core would need a hundred for all of them.
    slow = {"where": "pg_sleep(5)::text IS NOT NULL", "split": {"work_unit_rows": 2, "max_partitions": 10}}
    settings = on_cluster(
        *(cluster, ingestion, shop, tmp_path),
        datasets=[{**CUSTOMERS, **slow}],
        options={"retry": {"task_tries_max": 1}},
    )
    cluster.start_worker("seeing", cores=1)
    process = start_in_child(tmp_path, settings)
    try:
        wait_until(lambda: any(root.rglob("_temporary/0/_temporary/attempt*")), "its tasks write")
        cluster.start_worker("blind", hidden=root)
        said, errors = process.communicate(timeout=400)
    finally:
        process.kill()
        for name in filter(cluster.runs, ("seeing", "blind")):
            cluster.stop(name)

    assert process.returncode == 1, said + errors
    assert f"executors on {socket.gethostname()} can't see {root}/shop/.staging" in said
    assert "nothing of it is published" in said
    assert "something removes files" not in said


CONNECT_ELSEWHERE = """
import sys
from pathlib import Path
from gobblin_assets.spark import connect_server
from gobblin_assets.spark.spark_settings import SparkSettings

home = Path(sys.argv[1])
settings = SparkSettings(home / "spark", master="local[2]", capabilities=("postgres",))
print(connect_server.start_connect(home, settings, lambda line: None).url)
"""


@pytest.mark.turns("what Spark meets", of=8)
def test_a_connect_server_with_other_mounts_is_refused_before_anything_is_written(
    ingestion: Ingestion, shop: Database, tmp_path: Path
) -> None:
    root, home = Path(ingestion.root), tmp_path / "home elsewhere"
    home.mkdir()
    command = [*hiding(root), sys.executable, "-c", CONNECT_ELSEWHERE, str(home)]
    url = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    try:
        settings = {**on_cluster(SparkCluster(tmp_path), ingestion, shop, tmp_path), "remote": url}
        refused = run_in_child(tmp_path, settings)
    finally:
        connect_server.stop_connect(home)

    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert f"Spark's server on {socket.gethostname()} can't see {root}/shop/.staging" in refused.stdout
    assert "Nothing was written" in refused.stdout
    assert not list(root.rglob("*.parquet"))
    assert not list(root.rglob(".seen-*"))


def try_to_count(engine: SparkEngine) -> str:
    try:
        with spark_families("count rows"):
            return str(engine.get_session().range(0, 9, 1, 3).count())
    except GobblinError as error:
        return f"{type(error).__name__}: {error}"


def wait_for_executors(cluster: SparkCluster, work: Path) -> tuple[list[str], list[str]]:
    """What is said and counted without a worker, with one, and after the master was started anew."""
    said: list[str] = []
    engine = SparkEngine(
        master=cluster.url, conf=SMALL_EXECUTORS, work_folder=str(work), wait_s=WAIT_S, say=said.append
    )
    counted = [try_to_count(engine)]
    cluster.start_worker("late")
    # On a busy machine, an executor may take longer to start than this test lets it.
    counted.append(next(filter(str.isdigit, (try_to_count(engine) for _ in range(TRIES_MAX))), "never"))
    cluster.stop("late")
    # Its executor may outlive it for a moment.
    answers = (try_to_count(engine) for _ in range(TRIES_MAX))
    counted.append(next((each for each in answers if not each.isdigit()), "always"))
    engine.get_session().stop()
    return said, counted


@pytest.mark.turns("what Spark meets", of=8)
def test_a_cluster_without_executors_is_told_of_and_given_up(cluster: SparkCluster, tmp_path: Path) -> None:
    said, counted = in_child(wait_for_executors, SparkCluster(tmp_path, cluster.url), tmp_path / "spark")

    assert counted[1] == "9"
    for text in (counted[0], counted[2]):
        assert text.startswith("RejectedError: spark.master: Spark can't count rows: Spark has waited for executors at")
        assert "no executors" in text
        assert "GOBBLIN_SPARK_WAIT_S" in text
    assert len(said) >= 2
    assert all(f"gives up after {WAIT_S:.0f} s" in line for line in said)


def read_by_slots(cluster: SparkCluster, work: Path, variables: dict[str, str], job: dict[str, Any]) -> list[Any]:
    """The slots that are known before a session and with it, and what a run then says."""
    os.environ.update(variables)
    said: list[str] = []
    engine = SparkEngine(master=cluster.url, conf=SMALL_EXECUTORS, work_folder=str(work), capabilities=["postgres"])
    found: list[Any] = [engine.count_slots()]
    engine.get_session().range(0, 9, 1, 3).count()
    found.append(engine.count_slots())
    report = run_job(job, spark=engine, say=said.append)
    found.append([f"{each.urn}: {each.outcome} {each.error or ''}" for each in report.failed])
    engine.get_session().stop()
    found.append(engine.count_slots())
    return found


@pytest.mark.turns("what Spark meets", of=8)
def test_a_table_is_read_by_as_many_queries_as_the_cluster_runs_tasks(
    cluster: SparkCluster, ingestion: Ingestion, shop: Database, tmp_path: Path
) -> None:
    with shop.connect() as sql:
        sql.execute(f"CREATE UNLOGGED TABLE numbers AS SELECT n AS id FROM generate_series(1, {NUMBERS}) n")
        sql.execute("ANALYZE numbers")
    variables = {
        "GOBBLIN_DATABASE_URL": ingestion.database_url,
        "GOBBLIN_JDBC_SHOP_URL": shop.jdbc_url,
        "GOBBLIN_JDBC_SHOP_USER": shop.user,
        "GOBBLIN_JDBC_SHOP_PASSWORD": shop.password,
    }
    job = {
        "job": "shop",
        "source": {"connection": "shop", "reader": "jdbc"},
        "destination": ingestion.root,
        "datasets": [{"urn": "public.numbers"}],
    }
    cluster.start_worker("large", cores=SLOTS)
    try:
        before, opened, failed, stopped = in_child(
            read_by_slots, SparkCluster(tmp_path, cluster.url), tmp_path / "spark", variables, job
        )
    finally:
        cluster.stop("large")

    assert (before, opened, failed, stopped) == (None, SLOTS, [], None)
    with ingestion.engine.connect() as log:
        numbers = log.execute(select(work_unit.c.number).order_by(work_unit.c.number)).scalars().all()
    assert list(numbers) == list(range(SLOTS))
    found = ingestion.read("public.numbers").selectExpr("count(*)", "count(DISTINCT id)", "max(id)").collect()
    assert tuple(found[0]) == (NUMBERS, NUMBERS, NUMBERS)


def try_on_server(url: str, tries: int) -> tuple[list[str], list[str]]:
    said: list[str] = []
    engine = SparkEngine(remote=url, wait_s=WAIT_S, say=said.append)
    counted = [*(try_to_count(engine) for _ in range(tries)), str(engine.get_session().conf.get("spark.driver.host"))]
    engine.close()
    return said, counted


@pytest.mark.turns("what Spark meets", of=8)
def test_a_warm_server_on_a_cluster_is_reached_by_its_executors_and_says_when_it_has_none(
    cluster: SparkCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    settings = SparkSettings(tmp_path / "spark", master=cluster.url, conf=SMALL_EXECUTORS)
    server = connect_server.start_connect(tmp_path, settings, print)
    try:
        variables = Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
        assert not [each for each in variables if each.startswith((b"SPARK_LOCAL_IP=", b"PYSPARK_PYTHON="))]
        said, starved = in_child(try_on_server, server.url, 1)
        cluster.start_worker("second")
        _, counted = in_child(try_on_server, server.url, TRIES_MAX)
    finally:
        connect_server.stop_connect(tmp_path)
        if cluster.runs("second"):
            cluster.stop("second")

    assert "Spark has waited for executors" in starved[0]
    assert len(said) == 1
    assert "9" in counted
    assert not counted[-1].startswith(("127.", "localhost"))
