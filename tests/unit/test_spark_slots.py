"""How many tasks a cluster runs at once, by what is said of it."""

from pathlib import Path

import pytest

from gobblin_assets.jobs.ingest.spark_engine import SparkEngine
from gobblin_assets.spark.spark_settings import count_conf_slots


@pytest.mark.parametrize(
    ("master", "conf", "slots"),
    [
        ("local[4]", {"spark.cores.max": "16"}, None),
        ("local-cluster[2,1,1024]", {}, None),
        ("spark://host:7077", {}, None),
        ("spark://host:7077", {"spark.cores.max": "16"}, 16),
        ("spark://host:7077", {"spark.cores.max": "16", "spark.task.cpus": "4"}, 4),
        ("spark://host:7077", {"spark.cores.max": "16", "spark.task.cpus": "40"}, 1),
        # Executors without a number of cores take those of their worker.
        ("spark://host:7077", {"spark.executor.instances": "3"}, None),
        ("spark://host:7077", {"spark.executor.instances": "3", "spark.executor.cores": "2"}, 6),
        (
            "spark://host:7077",
            {"spark.executor.instances": "3", "spark.executor.cores": "2", "spark.cores.max": "4"},
            4,
        ),
        ("yarn", {"spark.executor.instances": "3"}, 3),
        ("k8s://https://host", {"spark.executor.instances": "3", "spark.executor.cores": "4"}, 12),
        # It begins with some and ends with as many as the work wants.
        (
            "yarn",
            {
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": "10",
                "spark.executor.instances": "1",
                "spark.executor.cores": "4",
            },
            40,
        ),
        ("yarn", {"spark.dynamicAllocation.enabled": "true", "spark.executor.instances": "1"}, None),
        ("spark://host:7077", {"spark.cores.max": "many"}, None),
        ("spark://host:7077", {"spark.cores.max": "0"}, None),
    ],
)
def test_settings_say_how_many_tasks_run_at_once(master: str, conf: dict[str, str], slots: int | None) -> None:
    assert count_conf_slots(master, conf) == slots


def test_an_engine_knows_it_from_settings_without_starting_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert SparkEngine(master="spark://host:7077").count_slots() is None
    (tmp_path / "spark-defaults.conf").write_text("spark.cores.max 24\n")
    engine = SparkEngine(master="spark://host:7077")
    assert engine.count_slots() == 24
    assert SparkEngine(master="spark://host:7077", conf={"spark.cores.max": "6"}).count_slots() == 6
    assert SparkEngine(remote="sc://host:15002", conf={"spark.cores.max": "6"}).count_slots() is None
    assert SparkEngine(conf={"spark.cores.max": "6"}).count_slots() is None
    assert not engine.has_session
