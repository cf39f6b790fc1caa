"""A process that imports all of the service has neither Dagster nor Spark: only executors need them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_IMPORT_ALL = """
import importlib, pkgutil, sys
import gobblin_assets.service as service
names = [each.name for each in pkgutil.walk_packages(service.__path__, "gobblin_assets.service.")]
names = [name for name in names if ".migrations" not in name]
for name in names:
    importlib.import_module(name)
assert len(names) > 30, names
print(*sorted({"dagster", "pyspark", "pandas"} & sys.modules.keys()))
"""


def test_the_service_brings_neither_dagster_nor_spark() -> None:
    answer = subprocess.run([sys.executable, "-c", _IMPORT_ALL], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split() == []
