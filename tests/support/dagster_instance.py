"""A Dagster instance of a test's own: a copy of one whose databases are made once in each process.

To make them takes three times as long as to copy and to open them.
"""

import functools
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg


@contextmanager
def open_instance(folder: Path, settings: Mapping[str, Any] | None = None) -> Iterator[dg.DagsterInstance]:
    """The instance of this block, in a folder that may have other files. ``settings``: as dagster.yaml has them."""
    shutil.copytree(_make_instance().name, folder, dirs_exist_ok=True)
    with dg.instance_for_test(settings, temp_dir=str(folder)) as instance:
        yield instance


@functools.cache
def _make_instance() -> "tempfile.TemporaryDirectory[str]":
    """Removed when the process ends."""
    made = tempfile.TemporaryDirectory(prefix="gobblin-dagster-")
    with dg.instance_for_test(temp_dir=made.name) as instance:
        # Each storage makes its database when it is first asked.
        instance.get_runs_count()
        instance.all_instigator_state()
        instance.get_asset_keys()
    return made
