"""A `dg` project with the layout that create-dagster 1.13 makes."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_PYPROJECT = """
[project]
name = "warehouse"
version = "0.1.0"

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "warehouse"
registry_modules = ["warehouse.components.*"]
"""

_DEFINITIONS = """
from pathlib import Path

from dagster import definitions, load_from_defs_folder


@definitions
def defs():
    return load_from_defs_folder(path_within_project=Path(__file__).parent)
"""


def make_project(folder: Path) -> Path:
    """The project's root; its module is ``warehouse`` and lies in ``src``."""
    root = folder / "warehouse"
    package = root / "src" / "warehouse"
    (package / "defs").mkdir(parents=True)
    (root / "pyproject.toml").write_text(_PYPROJECT, encoding="utf-8")
    (package / "definitions.py").write_text(_DEFINITIONS, encoding="utf-8")
    for module in (package, package / "defs"):
        (module / "__init__.py").touch()
    return root


@contextmanager
def imported(root: Path) -> Iterator[None]:
    """The project's module can be imported in this process, and is forgotten afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(root / "src"))
        try:
            yield
        finally:
            for name in [name for name in sys.modules if name.split(".")[0] == "warehouse"]:
                del sys.modules[name]


def defs_folder(root: Path) -> Path:
    return root / "src" / "warehouse" / "defs"
