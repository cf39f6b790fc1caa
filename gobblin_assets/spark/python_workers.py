"""What each task of a Python worker would pay for, however few rows it has, and need not.

At the start of each task, a worker invalidates the caches of all importers. Python 3.11 then reads the entries of each
archive on its path again, in Python, once for each package in it. Spark's own modules are in an archive, and Spark adds
each jar that it resolves, since a package may bring Python beside its classes: with the jars of S3 a third of a second
of a processor. At the end of each task, a worker looks for garbage, in all of its modules too: 50 ms.
"""

import gc
import sys
import zipfile
import zipimport
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa

_JAR: Final = ".jar"
_MODULES: Final = (".py", ".pyc")


def keep_python(listed: str) -> str:
    """Of the files that Spark puts on the path, with commas between them, all but the jars without a module."""
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
