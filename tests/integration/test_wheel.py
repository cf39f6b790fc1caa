"""The built wheel, in an environment that holds nothing of this checkout."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND_S_MAX = 200


def run(command: list[str | Path], *, cwd: Path) -> str:
    # PYTHONPATH could bring the checkout in through the back door.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON") and k != "VIRTUAL_ENV"}
    answer = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=COMMAND_S_MAX,
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
    """``bin`` of an environment with the wheel, and with the locked dependencies but not the editable project."""
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
        for package in ("gobblin_assets", "resources")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert data <= names
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"gobblin_assets", "resources"}
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    for needed in ("log4j2.properties", "0001_commit_log.py", "dagster.yaml"):
        assert any(name.endswith(f"/{needed}") for name in names)


def test_it_imports_from_where_it_was_installed(binaries: Path, tmp_path: Path) -> None:
    program = (
        "import gobblin_assets.definitions, gobblin_assets.assets.component, resources, importlib.metadata as m;"
        "print(gobblin_assets.__file__); print(resources.__file__); print(m.version('gobblin-assets'))"
    )
    package, resources, version = run([binaries / "python", "-c", program], cwd=tmp_path).split()
    assert Path(package).is_relative_to(binaries.parent)
    assert Path(resources).is_relative_to(binaries.parent)
    assert version.count(".") == 2


def test_the_command_answers(binaries: Path, tmp_path: Path) -> None:
    program = "import importlib.metadata as m; print(m.version('gobblin-assets'))"
    version = run([binaries / "python", "-c", program], cwd=tmp_path).strip()
    assert version in run([binaries / "gobblin-assets", "--version"], cwd=tmp_path)


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
    assert "gobblin_assets.assets.component.GobblinJobComponent" in answer
