"""Runs on a standalone cluster, whose workers are processes with an environment, and mounts, of their own."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.errors import GobblinError
from gobblin_assets.jobs.ingest.spark_engine import SparkEngine
from gobblin_assets.spark import connect_server
from gobblin_assets.spark.errors import spark_families
from gobblin_assets.spark.settings import SparkSettings
from tests.integration.test_end_to_end import source_rows
from tests.support.ingestion import Ingestion, run_in_child
from tests.support.postgres import Database
from tests.support.shop import CUSTOMERS, ingestion, shop
from tests.support.spark import in_child
from tests.support.spark_cluster import SMALL_EXECUTORS, SparkCluster, spark_cluster

__all__ = ["ingestion", "shop"]

WAIT_S = 8.0
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


def test_a_cluster_without_executors_is_told_of_and_given_up(cluster: SparkCluster, tmp_path: Path) -> None:
    said, counted = in_child(wait_for_executors, SparkCluster(tmp_path, cluster.url), tmp_path / "spark")

    assert counted[1] == "9"
    for text in (counted[0], counted[2]):
        assert text.startswith("RejectedError: spark.master: Spark can't count rows: Spark has waited for executors at")
        assert "no executors" in text
        assert "GOBBLIN_SPARK_WAIT_S" in text
    assert len(said) >= 2
    assert all(f"gives up after {WAIT_S:.0f} s" in line for line in said)


def try_on_server(url: str, tries: int) -> tuple[list[str], list[str]]:
    said: list[str] = []
    engine = SparkEngine(remote=url, wait_s=WAIT_S, say=said.append)
    counted = [*(try_to_count(engine) for _ in range(tries)), str(engine.get_session().conf.get("spark.driver.host"))]
    engine.close()
    return said, counted


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
