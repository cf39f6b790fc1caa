"""Open Dagster's UI on the demo's results: its assets, their partitions, and the log. Ends with Ctrl-C."""

import os
import sys

from demo.places import CLONE, DISK, apply_environment
from gobblin_assets.db import embedded

if not DISK.home.exists():
    raise SystemExit("There is nothing to show yet: run make demo first.")
apply_environment(DISK, embedded.start(DISK.home, print))
os.chdir(CLONE)
# Ours: it tells Dagster what commands did, before Dagster starts, so that the first page is true.
command = [sys.executable, "-m", "gobblin_assets.cli", "dagster", "dev", "-w", "workspace.yaml", *sys.argv[1:]]
os.execv(sys.executable, command)  # noqa: S606  no shell, our own interpreter: it gets the terminal's signals itself
