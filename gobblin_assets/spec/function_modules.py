"""The modules from which a job's ``function`` may come; the owner of the deployment decides.

A job names Python functions, which run in the process that reads the sources' passwords. So its author may use the
owner's own code, but not every installed package: by default a module must be on Python's path outside the standard
library and installed packages. GOBBLIN_FUNCTION_MODULES names the allowed modules and packages instead, joined by
commas; then no others are allowed.
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
        hint=f"The owner of this deployment allows it by {MODULES_VARIABLE}={module} (more are joined by commas).",
    )


def _is_own(top: str) -> bool:
    """Whether the top-level package or module is outside the places of installed packages.

    True also for a module that does not exist: its import gives the error.
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
