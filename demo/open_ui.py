"""Open Dagster's UI on the demo's results: its assets, their partitions, and the log. Ends with Ctrl-C."""

import os
import sys

from places import CLONE, HOME, apply_environment  # from the script's own folder

from gobblin_assets.db import embedded

if not HOME.exists():
    raise SystemExit("There is nothing to show yet: run make demo first.")
apply_environment(embedded.start(HOME, print))
os.chdir(CLONE)
command = [sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml", *sys.argv[1:]]
os.execv(sys.executable, command)  # noqa: S606  no shell, our own interpreter: it gets the terminal's signals itself
