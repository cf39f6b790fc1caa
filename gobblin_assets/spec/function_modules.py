"""Which modules a job's ``function`` may come from: those that whoever owns the deployment allowed.

A job is a text that names functions of Python, which run in the process that reads the sources' passwords. So its
author may use the owner's own code, and not whatever is installed: by default a module that lies on Python's path
outside of the standard library and of installed packages. GOBBLIN_FUNCTION_MODULES names the modules and packages that
are allowed instead, joined by commas; then no others are.
"""

import os
import sys
import sysconfig
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from gobblin_assets.errors import RejectedError

MODULES_VARIABLE: Final = "GOBBLIN_FUNCTION_MODULES"


def require_allowed_module(
    module: str, *, label: str, field: str, environment: Mapping[str, str] | None = None
) -> None:
    """RejectedError, which says how to allow it, unless functions of ``module`` may be called. Nothing is imported."""
    variables = os.environ if environment is None else environment
    named = variables.get(MODULES_VARIABLE)
    if named is None:
        if _is_own(module.partition(".")[0]):
            return
        found = "is a part of Python, or of an installed package"
    else:
        allowed = [each.strip() for each in named.split(",") if each.strip()]
        if any(module == each or module.startswith(f"{each}.") for each in allowed):
            return
        found = f"is not among {', '.join(allowed) or 'those (there are none)'}"
    raise RejectedError(
        f"{label}: {module} {found}",
        field=field,
        hint=f"Whoever owns this deployment allows it by {MODULES_VARIABLE}={module} (more are joined by commas).",
    )


def _is_own(top: str) -> bool:
    """Whether the top-level package or module lies where nothing is installed. One that is not there at all is as well:
    the import says so.
    """
    if top in sys.stdlib_module_names or top in sys.builtin_module_names:
        return False
    found = PathFinder.find_spec(top)
    if found is None:
        return True
    places = [*(found.submodule_search_locations or ()), *([found.origin] if found.origin else ())]
    return not any(Path(place).resolve().is_relative_to(installed) for place in places for installed in _installed())


def _installed() -> list[Path]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return [Path(sysconfig.get_path(name)).resolve() for name in names]
