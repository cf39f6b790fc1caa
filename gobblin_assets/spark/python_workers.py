"""Executors' Python: which fault is its own, and what each task would pay for, however few rows it has, and need not.

At the start of each task, a worker invalidates the caches of all importers. Python 3.11 then reads the entries of each
archive on its path again, in Python, once for each package in it. Spark's own modules are in an archive. Spark also
adds each jar that it resolves, since a package may bring Python beside its classes. With the jars of S3 that costs a
third of a second of a processor. At the end of each task, a worker looks for garbage, in all of its modules too: 50 ms.
"""

import gc
import re
import sys
import zipfile
import zipimport
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa

from gobblin_assets.errors import RejectedError

_JAR: Final = ".jar"
_MODULES: Final = (".py", ".pyc")
_NOT_INSTALLED: Final = re.compile(r"No module named '(?:gobblin_assets|pyarrow)")
_OTHER_VERSION: Final = re.compile(r"PYTHON_VERSION_MISMATCH|Python in worker has different version")
_NO_PYTHON: Final = re.compile(r"Cannot run program \"([^\"]*python[^\"]*)\"")


def explain_python_failure(text: str, *, action: str) -> RejectedError | None:
    """The refusal for executors whose Python can't run our tasks; None: ``text``, of an error of Spark's, says else."""
    if _NOT_INSTALLED.search(text):
        why = "the Python of Spark's executors has no package gobblin_assets"
    elif _OTHER_VERSION.search(text):
        why = "the Python of Spark's executors is of another minor version than this one"
    elif found := _NO_PYTHON.search(text):
        why = f"Spark's executors have no {found[1]}"
    else:
        return None
    return RejectedError(
        f"Spark can't {action}: {why}",
        field="spark",
        hint="Install gobblin-assets into a Python at the same path on each machine that runs executors, and name it: "
        "export PYSPARK_PYTHON=/path/to/python before this command, or before `gobblin-assets spark start`.",
    )


def keep_python(listed: str) -> str:
    """The files that Spark puts on the path, with commas between them, without the jars that have no module."""
    return ",".join(path for path in listed.split(",") if not path.lower().endswith(_JAR) or _has_python(path))


def _has_python(jar: str) -> bool:
    try:
        with zipfile.ZipFile(jar) as content:
            return any(name.endswith(_MODULES) for name in content.namelist())
    except (OSError, zipfile.BadZipFile):
        # It is left to Spark to say what is wrong with it.
        return True


def run_lightly(
    task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """A task of ``mapInArrow`` that leaves its worker light."""
    try:
        yield from task(batches)
    finally:
        _lighten()


def _lighten() -> None:
    for path, importer in list(sys.path_importer_cache.items()):
        # If it is needed again, it is made again without reading anything.
        if isinstance(importer, zipimport.zipimporter):
            del sys.path_importer_cache[path]
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
