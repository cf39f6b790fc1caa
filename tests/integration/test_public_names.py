"""The examples in docs/PYTHON.md run as they are, and the page shows every public name."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

import gobblin_assets
import gobblin_assets.dagster
from gobblin_assets.db.embedded import EmbeddedServer
from tests.architecture.sources import ROOT, read_tree
from tests.support import postgres

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "PYTHON.md"


def list_blocks(document: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


BLOCKS = list_blocks(DOCUMENT)
MODULES = [gobblin_assets, gobblin_assets.dagster]
BEGINNING = """
import sys
from pathlib import Path
folder = sys.argv[1]
"""


RUN_WHOLE = """
import sys
sys.exit(not defs.resolve_job_def("shop_whole").execute_in_process().success)
"""


@contextmanager
def shop_environment(server: EmbeddedServer, database_url: str, folder: Path) -> Iterator[dict[str, str]]:
    """The variables of a program that reads a small table."""
    with postgres.temporary_database(server) as name:
        url = server.url(name).replace("postgresql+psycopg://", "postgresql://")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "CREATE TABLE orders AS SELECT id::bigint, 2 * id AS amount FROM generate_series(1, 3) id"
            )
        source = postgres.describe_database(server, name)
        yield {
            **{key: value for key, value in os.environ.items() if not key.startswith(("GOBBLIN_", "DAGSTER_"))},
            "GOBBLIN_DATABASE_URL": database_url,
            "GOBBLIN_HOME": str(folder / "home"),
            "GOBBLIN_SPARK_MASTER": "local[1]",
            "GOBBLIN_JDBC_SHOP_URL": source.jdbc_url,
            "GOBBLIN_JDBC_SHOP_USER": source.user,
            "GOBBLIN_JDBC_SHOP_PASSWORD": source.password,
        }


@pytest.mark.turns("examples of pages")
def test_every_block_runs_after_those_before_it(server: EmbeddedServer, database_url: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(BEGINNING + "\n".join(BLOCKS), encoding="utf-8")
    with shop_environment(server, database_url, tmp_path) as environment:
        done = subprocess.run(
            [sys.executable, "-W", "error::DeprecationWarning:__main__", str(program), str(tmp_path)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=250,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "public.orders" in done.stdout


@pytest.mark.turns("examples of pages")
def test_the_function_in_the_page_on_dagster_runs(server: EmbeddedServer, database_url: str, tmp_path: Path) -> None:
    (block,) = [each for each in list_blocks(DOCUMENT.with_name("DAGSTER.md")) if "@gobblin_assets" in each]
    program = tmp_path / "program.py"
    program.write_text(f"{block}\n{RUN_WHOLE}", encoding="utf-8")
    (tmp_path / "jobs").mkdir()
    job = {"job": "shop", "source": {"connection": "shop"}, "destination": "../lake", "datasets": [{"table": "orders"}]}
    (tmp_path / "jobs" / "shop.yaml").write_text(json.dumps(job), encoding="utf-8")
    with shop_environment(server, database_url, tmp_path) as environment:
        done = subprocess.run(
            [sys.executable, str(program)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250
        )
    assert done.returncode == 0, done.stderr[-4000:]
    said = [line.rpartition(" - ")[2] for line in done.stderr.splitlines()]
    assert [line for line in said if line in {"before", "shop/orders: 3 rows", "after"}] == [
        "before",
        "shop/orders: 3 rows",
        "after",
    ]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.__name__))
def test_every_name_is_there_and_has_an_example(module: object) -> None:
    imported = {
        alias.name
        for block in BLOCKS
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.ImportFrom) and node.module == module.__name__
        for alias in node.names
    }
    assert imported == set(module.__all__)
    assert all(getattr(module, name).__name__ == name for name in module.__all__)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.__name__))
def test_the_reference_has_every_name_once(module: object) -> None:
    reference = DOCUMENT.with_name("PYTHON_REFERENCE.md").read_text(encoding="utf-8")
    section = reference.partition(f"## Names of `{module.__name__}`\n")[2].partition("\n## ")[0]
    errors = reference.partition("## Errors\n")[2].partition("\n## ")[0] if module is gobblin_assets else ""
    # The names stand in the first column; the root of the errors stands before its table.
    firsts = [line.split("|")[1] for line in (section + errors).splitlines() if line.startswith("| `")]
    root = [] if module is not gobblin_assets else ["GobblinError"]
    named = [name for first in firsts for name in re.findall(r"`(\w+)`", first)]
    assert sorted(named + root) == sorted(module.__all__)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.__name__))
def test_what_checkers_see_is_what_is_imported(module: object) -> None:
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    seen = {
        alias.asname or alias.name: ((node.module or "").removeprefix(f"{module.__name__}."), alias.name)
        for branch in tree.body
        if isinstance(branch, ast.If)
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    deprecated = getattr(module, "_DEPRECATED", {})
    assert seen == {name: (place, name) for name, place in module._MODULES.items()} | deprecated


@pytest.mark.rotating(of=3)
@pytest.mark.parametrize("name", ["parse_job", "read_any_job", "read_job_file"])
def test_an_earlier_name_warns_once_where_it_is_imported_and_names_load_job(name: str) -> None:
    program = f"""import warnings
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as found:
    from gobblin_assets import {name}
    from gobblin_assets import {name}
(warning,) = found
assert warning.category is DeprecationWarning and warning.filename == "<string>", warning
assert "use gobblin_assets.load_job" in str(warning.message)
job = dict(job="a", kind="distcp", source="/in", destination="/out")
if "{name}" == "read_any_job":
    assert {name}(job).job == "a"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_project_s_own_code_uses_no_earlier_name() -> None:
    folders = [ROOT / name for name in ("gobblin_assets", "resources", "examples", "tests", "tools", "benchmarks")]
    texts = [text for folder in folders for text in read_tree(folder).values() if "from gobblin_assets import" in text]
    trees = [ast.parse(text) for text in texts]
    assert trees
    used = {
        alias.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "gobblin_assets"
        for alias in node.names
    }
    assert not used & gobblin_assets._DEPRECATED.keys()


def test_importing_the_package_imports_nothing_heavy() -> None:
    program = (
        "import sys, gobblin_assets; gobblin_assets.RejectedError, gobblin_assets.open_log; "
        "sys.exit(str([n for n in ('dagster', 'pandas', 'pyspark', 'pydantic') if n in sys.modules]) "
        "if {'dagster', 'pandas', 'pyspark', 'pydantic'} & sys.modules.keys() else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
