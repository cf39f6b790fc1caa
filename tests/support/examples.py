"""The packages of ``examples/``, installed like a user's: built, and unpacked where only some processes look."""

import subprocess
import sys
import zipfile
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def install_example(name: str, site: Path) -> None:
    """The same effect as `pip install --no-deps --target` with the package's wheel."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(site)]
    subprocess.run(command, cwd=EXAMPLES / name, check=True, capture_output=True, timeout=100)
    (wheel,) = site.glob(f"{name}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
