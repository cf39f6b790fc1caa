"""The service in a fresh process: what it imports, and what it says where the extra is missing."""

import subprocess
import sys

LOADED = """
import sys
import gobblin_assets.cli.serving, gobblin_assets.service.opening, gobblin_assets.service.ui.web_server
from gobblin_assets.service.api.application import make_api
from gobblin_assets.service.ui.service_pages import add_pages
add_pages(make_api(None))
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"dagster", "pyspark", "pandas"}))
"""
WITHOUT = """
import sys
from importlib import util
found = util.find_spec
util.find_spec = lambda name, *rest: None if name in {"fastapi", "uvicorn"} else found(name, *rest)
from gobblin_assets.cli import main
main(["service", "serve", "--no-auth"])
"""


def run(text: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)


def test_the_service_loads_neither_dagster_nor_an_engine() -> None:
    done = run(LOADED)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_without_the_extra_the_command_says_what_to_install() -> None:
    done = run(WITHOUT)
    assert done.returncode == 2
    assert "fastapi, uvicorn is not installed" in done.stderr
    assert "pip install gobblin-assets[service]" in done.stderr
