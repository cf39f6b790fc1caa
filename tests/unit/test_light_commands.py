"""Commands that only look at the log start without Dagster, pandas and Spark; --help shows each command's own text."""

import os
import subprocess
import sys

import click
import pytest

from gobblin_assets.cli import main
from gobblin_assets.cli.lazy_commands import LazyGroup
from gobblin_assets.cli.sequences import commit

HEAVY = ("dagster", "pandas", "pyspark", "confluent_kafka", "pydantic")
LIGHT = ("views", "sequences", "database")
WITHOUT_DAGSTER = (
    *(
        "cleaning",
        "compacting",
        "destinations",
        "discovering",
        "events",
        "jobs",
        "reconciling",
        "recovering",
        "streams",
    ),
    "verifying",
)

# Modules that only Spark sessions and migrations need.
LATE = ("alembic", "dagster", "grpc", "pandas", "pyiceberg", "pyspark.sql.connect")
_IMPORTING = f"""
import importlib, sys
for name in {WITHOUT_DAGSTER!r}:
    importlib.import_module(f"gobblin_assets.cli.{{name}}")
importlib.import_module("gobblin_assets.sources.jdbc.database_connection")
found = [name for name in {LATE!r} if name in sys.modules]
sys.exit(f"imported: {{found}}" if found else 0)
"""
_PROGRAM = f"""
import importlib, sys
from gobblin_assets.cli import main
main(["--help"], standalone_mode=False)
for name in {LIGHT!r}:
    importlib.import_module(f"gobblin_assets.cli.{{name}}")
found = [name for name in {HEAVY!r} if name in sys.modules]
sys.exit(f"imported: {{found}}" if found else 0)
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
_WITHOUT_SPARK = """
import sys
from gobblin_assets.cli import jobs
from gobblin_assets.jobs.copy.program import PROGRAM
from gobblin_assets.jobs.ingest.program import PROGRAM
from gobblin_assets.sources.jdbc import source
found = [name for name in ("dagster", "grpc", "pandas", "pyspark") if name in sys.modules]
sys.exit(f"imported: {found}" if found else 0)
"""


def test_what_only_looks_at_the_log_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], env=dict(os.environ), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "commit" in done.stdout


def test_what_runs_a_job_imports_no_dagster_and_no_session_of_spark() -> None:
    done = subprocess.run([sys.executable, "-c", _IMPORTING], env=dict(os.environ), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_copies_imports_what_reads_stores_where_a_source_is_one() -> None:
    done = subprocess.run([sys.executable, "-c", _COPYING], env=dict(os.environ), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_copy_and_an_ingestion_that_arrow_reads_import_nothing_of_spark() -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT_SPARK], env=dict(os.environ), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("group", [main, commit], ids=["main", "commit"])
def test_what_help_says_of_a_command_is_what_the_command_says(group: click.Group) -> None:
    assert isinstance(group, LazyGroup)
    assert group.lazy
    for name, lazy in group.lazy.items():
        found = lazy.load()
        assert found.name == name
        assert lazy.help == found.get_short_help_str(limit=500)
