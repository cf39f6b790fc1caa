"""What is kept off the path of Python workers, and what a task leaves to the next one."""

import subprocess
import sys
import zipfile
from pathlib import Path

from gobblin_assets.spark.python_workers import keep_python

PROGRAM = """
import gc, importlib, sys, zipimport
from gobblin_assets.spark.python_workers import run_lightly
reads = []
sys.setprofile(lambda frame, event, _what: reads.append(event) if frame.f_code.co_name == "_read_directory" else None)
sys.path.insert(0, sys.argv[1])
import inside.first
assert isinstance(sys.path_importer_cache[sys.argv[1]], zipimport.zipimporter)
assert list(run_lightly(reversed, [1, 2])) == [2, 1]
frozen = gc.get_freeze_count()
assert frozen > 0
reads.clear()
importlib.invalidate_caches()
import inside.second, beside
print(inside.first.NAME, inside.second.NAME, beside.NAME, len(reads))
more = [[] for _ in range(1000)]
list(run_lightly(iter, []))
assert gc.get_freeze_count() == frozen, "frozen again"
"""


def archive(path: Path, *names: str) -> str:
    with zipfile.ZipFile(path, "w") as made:
        for name in names:
            made.writestr(name, f"NAME = {Path(name).stem!r}")
    return str(path)


def test_only_jars_without_python_are_left_out(tmp_path: Path) -> None:
    classes = archive(tmp_path / "driver.jar", "org/example/Driver.class", "META-INF/MANIFEST.MF")
    package = archive(tmp_path / "package.JAR", "org/example/Frames.class", "frames/__init__.py")
    compiled = archive(tmp_path / "compiled.jar", "frames.pyc")
    files = archive(tmp_path / "files.zip", "data.txt")
    broken = tmp_path / "broken.jar"
    broken.write_bytes(b"no archive")
    missing, module = str(tmp_path / "missing.jar"), str(tmp_path / "module.py")

    listed = [classes, package, compiled, files, str(broken), missing, module]

    assert keep_python(",".join(listed)).split(",") == listed[1:]
    assert keep_python(classes) == ""
    assert keep_python("") == ""


def test_the_next_task_reads_no_archive_again_and_still_imports_from_it(tmp_path: Path) -> None:
    path = archive(tmp_path / "modules.zip", "inside/__init__.py", "inside/first.py", "inside/second.py", "beside.py")
    done = subprocess.run([sys.executable, "-c", PROGRAM, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *names, reads = done.stdout.split()
    assert names == ["first", "second", "beside"]
    if sys.version_info < (3, 12):
        assert reads == "0"
