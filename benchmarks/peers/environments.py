"""Virtual environments of the peers: made for the measure, apart from the product's."""

import subprocess
import sys
from pathlib import Path

DLT = (
    "dlt[filesystem,parquet,sql_database]==1.31.0",
    "connectorx==0.4.6",
    "sqlalchemy<2.1",
    "psycopg2-binary",
    "pyarrow",
)
SLING = ("sling==1.4.11", "sling-linux-amd64==1.4.11")
INGESTR = ("ingestr==1.0.78",)

_INSTALL_S_MAX = 900.0


def make_environment(folder: Path, requirements: tuple[str, ...]) -> Path:
    """Make the environment; returns its folder of programs. RuntimeError with the last error if that fails."""
    programs = folder / "bin"
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(programs / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S_MAX, check=False)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{' '.join(command[1:4])} took more than {_INSTALL_S_MAX:.0f} s") from None
        if done.returncode != 0:
            raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1])
    return programs
