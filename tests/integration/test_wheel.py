"""The built wheel, in an environment that holds nothing of this checkout.

`make test` looks at its files. `make proof` installs it for every Python that it names, with the locked dependencies
and with the newest ones that it allows.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from importlib.metadata import version as version_of
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.postgres import Database

ROOT = Path(__file__).resolve().parents[2]
COMMAND_S_MAX = 280
INSTALL_S_MAX = 900
PYTHONS = ("3.11", "3.12", "3.13")

JOB = """
job: shop
source: {{connection: shop}}
destination: {lake}
datasets: [{{urn: public.orders}}]
"""


def run(command: list[str | Path], *, cwd: Path, seconds: int = COMMAND_S_MAX, **variables: str) -> str:
    # PYTHONPATH could make the checkout visible.
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "GOBBLIN")) and k != "VIRTUAL_ENV"
    }
    answer = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=seconds,
        stdin=subprocess.DEVNULL,
    )
    assert answer.returncode == 0, f"{command}\n{answer.stdout}{answer.stderr}"
    return answer.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def binaries(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``bin`` of an environment with the wheel and the locked dependencies, without the editable project."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    # A line in a .pth file adds a folder without reading the .pth files in it, so the checkout stays out.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    run([python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--ignore-installed", wheel], cwd=folder)
    return folder / "bin"


def test_the_wheel_holds_the_packages_and_their_data_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    data = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "gobblin_assets").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert data <= names
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"gobblin_assets"}
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    for needed in ("log4j2.properties", "0001_commit_log.py", "dagster.yaml"):
        assert any(name.endswith(f"/{needed}") for name in names)


@pytest.mark.thorough
def test_it_imports_from_where_it_was_installed(binaries: Path, tmp_path: Path) -> None:
    program = (
        "import gobblin_assets.definitions, gobblin_assets.dagster.component, importlib.metadata as m;"
        "print(gobblin_assets.__file__); print(m.version('gobblin-assets'))"
    )
    package, version = run([binaries / "python", "-c", program], cwd=tmp_path).split()
    assert Path(package).is_relative_to(binaries.parent)
    assert version.count(".") == 2


@pytest.mark.thorough
def test_the_command_answers(binaries: Path, tmp_path: Path) -> None:
    program = "import importlib.metadata as m; print(m.version('gobblin-assets'))"
    version = run([binaries / "python", "-c", program], cwd=tmp_path).strip()
    assert version in run([binaries / "gobblin-assets", "--version"], cwd=tmp_path)


@pytest.mark.thorough
def test_dg_finds_the_component(binaries: Path, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "warehouse"\nversion = "0"\n'
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "warehouse"\n',
        encoding="utf-8",
    )
    (tmp_path / "warehouse" / "defs").mkdir(parents=True)
    (tmp_path / "warehouse" / "__init__.py").touch()
    (tmp_path / "warehouse" / "defs" / "__init__.py").touch()
    program = "import sys; from dagster_dg_cli.cli import main; sys.argv[0] = 'dg'; main()"
    answer = run(
        [binaries / "python", "-c", program, "list", "components", "--package", "gobblin_assets", "--json"],
        cwd=tmp_path,
    )
    assert "gobblin_assets.dagster.component.GobblinJobComponent" in answer


def find_python(version: str) -> str:
    found = sys.executable if sys.version.startswith(f"{version}.") else shutil.which(f"python{version}")
    # A version manager's names on PATH answer only for versions that are turned on.
    if found is None or subprocess.run([found, "--version"], capture_output=True).returncode != 0:
        pytest.skip(f"this machine has no Python {version}")
    return found


@pytest.mark.thorough
@pytest.mark.timeout(INSTALL_S_MAX + COMMAND_S_MAX)
@pytest.mark.parametrize("version", PYTHONS)
def test_with_the_newest_versions_that_it_allows_it_publishes_a_table(
    wheel: Path, version: str, fresh_database: Database, tmp_path: Path
) -> None:
    """In an empty environment, with the versions that ``pip install`` of the wheel chooses today."""
    run([find_python(version), "-m", "venv", tmp_path / "environment"], cwd=tmp_path)
    binaries = tmp_path / "environment" / "bin"
    install = [binaries / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel]
    run(install, cwd=tmp_path, seconds=INSTALL_S_MAX)
    with fresh_database.connect() as connection:
        connection.execute(
            "CREATE TABLE orders AS SELECT id, id::float8 / 7 AS price FROM generate_series(1, 1000) AS id"
        )
    (tmp_path / "shop.yaml").write_text(JOB.format(lake=tmp_path / "lake"), encoding="utf-8")
    variables = {
        "GOBBLIN_HOME": str(tmp_path / "home"),
        "GOBBLIN_DATABASE_URL": fresh_database.url,
        "GOBBLIN_JDBC_SHOP_URL": fresh_database.jdbc_url,
        "GOBBLIN_JDBC_SHOP_USER": fresh_database.user,
        "GOBBLIN_JDBC_SHOP_PASSWORD": fresh_database.password,
    }
    command = binaries / "gobblin-assets"

    version_said = run([command, "--version"], cwd=tmp_path)
    run([command, "db", "upgrade"], cwd=tmp_path, **variables)
    run([command, "run", "shop.yaml"], cwd=tmp_path, **variables)
    (line,) = json.loads(run([command, "status", "--job", "shop", "--json"], cwd=tmp_path, **variables))

    assert version_said.split()[-1].count(".") == 2
    assert (line["urn"], line["rows"]) == ("public.orders", 1000)


def test_every_version_of_spark_that_it_allows_is_of_the_line_that_is_tested() -> None:
    """A connector fits only the minor line that it was built for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (spark,) = (each for each in map(Requirement, project["project"]["dependencies"]) if each.name == "pyspark")
    lines = {
        f"{major}.{minor}"
        for major in (3, 4, 5)
        for minor in range(10)
        if spark.specifier.contains(f"{major}.{minor}.9")
    }
    assert lines == {".".join(version_of("pyspark").split(".")[:2])}
