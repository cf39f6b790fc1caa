"""The facts of the machine that the figures depend on."""

import datetime as dt
import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

from sqlalchemy import text

from benchmarks.tables import Table
from benchmarks.world import World

_PACKAGES = ("pyspark", "pyarrow", "psycopg", "sqlalchemy", "dagster")

MACHINE_TITLE = "The machine"


def describe_machine(world: World) -> Table:
    with world.engine.connect() as connection:
        postgres = connection.execute(text("SELECT current_setting('server_version')")).scalar_one()
        synced = connection.execute(text("SELECT current_setting('fsync')")).scalar_one()
    facts = {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d"),
        "processors": f"{len(os.sched_getaffinity(0))} ({_find_processor()})",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system of the figures": find_file_system(world.home),
        "Python": platform.python_version(),
        "Java": _find_java(),
        "Postgres (embedded)": f"{postgres}, fsync {synced}",
        **{name: version(name) for name in _PACKAGES},
    }
    return Table(MACHINE_TITLE, ("fact", "value"), tuple(facts.items()))


def load_average() -> str:
    """The machine's load, averaged over one minute."""
    return f"{os.getloadavg()[0]:.1f}"


def _find_processor() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def find_file_system(path: Path) -> str:
    """The kind of the file system that holds the path, such as ext4."""
    mounted = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    holding = [(len(place), kind) for _device, place, kind, *_ in mounted if path.resolve().is_relative_to(place)]
    # Of two that are mounted at one place, the later one is seen.
    return max(enumerate(holding), key=lambda each: (each[1][0], each[0]))[1][1]


def _find_java() -> str:
    shown = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "([^"]+)"', shown.stderr)
    return found[1] if found else "unknown"
