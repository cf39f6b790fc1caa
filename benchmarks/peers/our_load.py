"""Runs of job files inside one process: each line of the input is a JSON list with the path of a job file."""

import json
import sys

from gobblin_assets import run_job

for line in sys.stdin:
    report = run_job(*json.loads(line))
    if report.failed:
        sys.exit(str(report.failed[0].error))
    print("loaded", flush=True)
