"""Runs on a standalone cluster, whose workers are processes with an environment, and mounts, of their own."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_end_to_end import source_rows
from tests.support.ingestion import Ingestion, run_in_child
from tests.support.postgres import Database
from tests.support.shop import CUSTOMERS, ingestion, shop
from tests.support.spark_cluster import SMALL_EXECUTORS, SparkCluster, spark_cluster

__all__ = ["ingestion", "shop"]


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
