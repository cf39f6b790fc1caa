"""What each command imports: a command costs what it does, and most of a short command's time are its imports.

Each command runs in a process of its own. ``imported_modules.json`` holds what it imported when that was last recorded:
our modules, and the packages of others. A command may import as many of our modules as were recorded and ``MORE_MAX``
beside them, and no package that is not in its list. With GOBBLIN_TEST_RECORD_IMPORTS=1 this test records what there is
now: what a commit adds there is what its author wants.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.postgres import Database

RECORDED: Final = Path(__file__).with_name("imported_modules.json")
MORE_MAX: Final = 5

_SPARK: Final = ("grpc", "pandas", "pyspark")
_LATE: Final = (*_SPARK, "alembic", "boto3", "botocore", "confluent_kafka", "dagster", "pyiceberg", "urllib3")
FORBIDDEN: Final = {
    "--help": (*_LATE, "numpy", "psycopg", "pyarrow", "pydantic", "sqlalchemy", "yaml"),
    "status": (*_LATE, "pydantic"),
    "run tables.yaml": _LATE,
    "run copy.yaml": _LATE,
    "plan tables.yaml": _LATE,
    "plan copy.yaml": _LATE,
}
"""The packages that a command may never import, whatever is recorded."""

TABLES: Final = """
job: shop
source: {connection: shop}
destination: ./lake
datasets:
  - urn: public.orders
    extract: append_only
    watermark: {column: id}
"""
COPY: Final = """
job: mirror
kind: distcp
source: ./in
destination: ./out
datasets:
  - urn: photos
"""
_PROGRAM: Final = """
import json, sys
from pathlib import Path
from gobblin_assets.cli import main
main(sys.argv[2:], standalone_mode=False)
Path(sys.argv[1]).write_text(json.dumps(sorted(sys.modules)))
"""

# What reads stores; copies between directories do without it.
FOR_STORES = ("botocore", "gobblin_assets.fs.s3", "urllib3")
_COPYING = f"""
import sys
from gobblin_assets.jobs.copy.transfer import copy_process
early = [name for name in ("gobblin_assets.fs.registry", *{FOR_STORES!r}) if name in sys.modules]
from gobblin_assets.jobs.copy import program
early += [name for name in {FOR_STORES!r} if name in sys.modules]
from gobblin_assets.fs.registry import open_object_store
open_object_store("s3://bucket/prefix", "source")
early += ["botocore"] if "botocore" in sys.modules else []
sys.exit(f"imported: {{early}}" if early else 0)
"""

OTHERS: Final = (
    *("cleaning", "compacting", "database", "destinations", "discovering", "events", "reconciling", "recovering"),
    *("sequences", "streams", "verifying"),
)
"""Modules of commands that have no line in ``FORBIDDEN``."""
_IMPORTING = f"""
import importlib, sys
for name in {OTHERS!r}:
    importlib.import_module(f"gobblin_assets.cli.{{name}}")
importlib.import_module("gobblin_assets.sources.jdbc.database_connection")
found = [name for name in {_LATE!r} if name in sys.modules]
sys.exit(f"imported: {{found}}" if found else 0)
"""

_COMPLETING = f"""
import click, sys
from gobblin_assets.cli import main
names = [each.value for each in main.shell_complete(click.Context(main), "")]
found = [name for name in {(*_LATE, "pyarrow", "sqlalchemy")!r} if name in sys.modules]
sys.exit(f"imported: {{found}}; completed: {{names}}" if found or names[:2] != ["run", "report"] else 0)
"""


@pytest.fixture
def folder(tmp_path: Path, fresh_database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    with fresh_database.connect() as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, name text)")
        connection.execute("INSERT INTO orders SELECT n, 'order ' || n FROM generate_series(1, 5) n")
    (tmp_path / "tables.yaml").write_text(TABLES, encoding="utf-8")
    (tmp_path / "copy.yaml").write_text(COPY, encoding="utf-8")
    (tmp_path / "in/photos").mkdir(parents=True)
    (tmp_path / "in/photos/a.jpg").write_bytes(b"a")
    for name in ("lake", "out"):
        (tmp_path / name).mkdir()
    for name, value in {
        "GOBBLIN_HOME": str(tmp_path / "home"),
        "GOBBLIN_DATABASE_URL": database_url,
        "GOBBLIN_JDBC_SHOP_URL": fresh_database.jdbc_url,
        "GOBBLIN_JDBC_SHOP_USER": fresh_database.user,
        "GOBBLIN_JDBC_SHOP_PASSWORD": fresh_database.password,
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.mark.parametrize("command", FORBIDDEN)
def test_a_command_imports_what_is_recorded(command: str, folder: Path) -> None:
    modules = _list_imported(command, folder)
    packages = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    others = sorted(name for name in packages if not name.startswith(("_", "gobblin_assets")))
    ours = sorted(name for name in modules if name.startswith("gobblin_assets."))
    recorded: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    if os.environ.get("GOBBLIN_TEST_RECORD_IMPORTS"):
        recorded[command] = {"packages": others, "modules": ours}
        RECORDED.write_text(f"{json.dumps(dict(sorted(recorded.items())), indent=1)}\n", encoding="utf-8")

    budget = recorded[command]
    assert set(others) & set(FORBIDDEN[command]) == set(), f"{command} may never import these"
    assert set(others) - set(budget["packages"]) == set(), f"{command} imports these packages since its record"
    new = sorted(set(ours) - set(budget["modules"]))
    allowed = len(budget["modules"]) + MORE_MAX
    assert len(ours) <= allowed, f"{command} imports {len(ours)} modules of ours, allowed {allowed}; new: {new}"


def _list_imported(command: str, folder: Path) -> list[str]:
    told = folder / "modules.json"
    words = [sys.executable, "-c", _PROGRAM, str(told), *command.split()]
    done = subprocess.run(words, cwd=folder, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(told.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize(
    "program",
    [_IMPORTING, _COPYING, _COMPLETING],
    ids=["other commands", "processes that copy", "completion"],
)
def test_what_is_needed_seldom_is_imported_late(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], env=dict(os.environ), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
