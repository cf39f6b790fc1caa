"""In a project made by `dg`: `dg` scaffolds a component, which is materialized without changes."""

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pyarrow.parquet as pq
import pytest

from gobblin_assets.spark.connect_server import ConnectServer
from tests.support.dg_project import imported, make_project
from tests.support.postgres import Database
from tests.support.spark import in_child

COMPONENT = "gobblin_assets.dagster.component.GobblinJobComponent"
PROGRAM = "import sys; from dagster_dg_cli.cli import main; sys.argv[0] = 'dg'; main()"
KEY = dg.AssetKey(["shop", "public.customers"])


@pytest.fixture
def project(
    tmp_path: Path,
    fresh_database: Database,
    database_url: str,
    connect: ConnectServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A project with one component that `dg` scaffolded, and the variables that its file needs."""
    with fresh_database.connect() as connection:
        connection.execute("CREATE TABLE customers AS SELECT n AS id FROM generate_series(1, 5) n")
    root = make_project(tmp_path)
    for name, value in {
        "PYTHONPATH": os.pathsep.join([str(root / "src"), str(Path(__file__).parents[2])]),
        "GOBBLIN_DATABASE_URL": database_url,
        "GOBBLIN_HOME": str(connect.log_path.parents[1]),
        "GOBBLIN_JDBC_SALES_URL": fresh_database.jdbc_url,
        "GOBBLIN_JDBC_SALES_USER": fresh_database.user,
        "GOBBLIN_JDBC_SALES_PASSWORD": fresh_database.password,
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("GOBBLIN_SPARK_MASTER", "GOBBLIN_SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    run_dg(root, "scaffold", "defs", COMPONENT, "shop", "--connection", "sales")
    return root


def run_dg(root: Path, *arguments: str) -> str:
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.turns("what Spark meets", of=8)
def test_a_scaffolded_component_is_materialized_on_the_warm_spark_of_the_home(project: Path) -> None:
    """Spark is needed here; the scaffolded file alone needs none."""
    said = in_child(materialize, str(project))
    assert published(project) == [1, 2, 3, 4, 5]
    assert not any("Spark" in line for line in said)

    (file,) = (project / "src").rglob("defs.yaml")
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("connection: sales", "connection: sales, reader: jdbc"), encoding="utf-8")
    said = in_child(materialize, str(project))
    assert published(project) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5], "the first publication stays until its grace is over"
    assert any("Spark: the warm Connect server" in line for line in said)


def materialize(project: str) -> list[str]:
    """The lines of the run's log. A process has Spark inside or on a server, so this is a process of its own."""
    with imported(Path(project)), dg.instance_for_test() as instance:
        definitions = dg.ComponentTree.for_project(Path(project, "src", "warehouse")).build_defs()
        result = definitions.resolve_job_def("shop_whole").execute_in_process(instance=instance)
        assert instance.get_latest_materialization_event(KEY) is not None
        return [entry.user_message for entry in instance.all_logs(result.run_id)]


@pytest.mark.thorough
def test_dg_loads_and_launches_it(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through Spark."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    run_dg(project, "check", "defs")
    run_dg(project, "launch", "--assets", f'key:"{KEY.to_user_string()}"')
    assert published(project) == [1, 2, 3, 4, 5]


def published(root: Path) -> list[int]:
    paths = [path for path in (root / "lake").rglob("*.parquet") if ".staging" not in path.parts]
    return sorted(n for path in paths for n in pq.ParquetFile(path).read()["id"].to_pylist())
