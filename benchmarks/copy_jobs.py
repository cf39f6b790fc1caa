"""Whole runs of copy jobs: by this process, as a Dagster run does them, and by the command line."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.world import World, environment_of, new_job
from gobblin_assets.jobs.copy.copy_spec import CopySpec
from gobblin_assets.jobs.copy.running import open_copy_run
from gobblin_assets.model.partition import WHOLE
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.run_values import RunReport, RunRequest
from gobblin_assets.run.runner import run_request

RUN_S_MAX: Final = 1_800.0


def describe_copy(source: Path, destination: str, **options: Any) -> dict[str, Any]:
    """The options of a new job that copies the whole tree ``source``."""
    return {"job": new_job(), "kind": "distcp", "source": str(source), "destination": destination, **options}


def run_copy(world: World, options: Mapping[str, Any], say: Callable[[str], None] = lambda _line: None) -> RunReport:
    """RuntimeError unless everything was published: a failed run gives no figure."""
    job = CopySpec.model_validate(options)
    with open_copy_run(job, open_stores(world.engine), say, lambda _report: None) as ports:
        report = run_request(RunRequest(job, dict.fromkeys(ports.kind.urns, (WHOLE,))), ports)
    unpublished = [each for each in report.datasets if each.publication is None]
    if report.failed or unpublished:
        raise RuntimeError(f"the run of {job.job} published less than all: {(*report.failed, *unpublished)[0].error}")
    return report


def start_command(world: World, options: Mapping[str, Any], *, with_dagster: bool = False) -> "subprocess.Popen[str]":
    """`gobblin-assets run` of the job, in a process of its own, whose output is for whoever waits for it."""
    job = world.home / f"{options['job']}.yaml"
    job.write_text(yaml.safe_dump(dict(options)), encoding="utf-8")
    program = Path(sys.executable).with_name("gobblin-assets")
    return subprocess.Popen(
        [str(program), "run", str(job), *([] if with_dagster else ["--no-dagster"])],
        env=environment_of(world),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_command(world: World, options: Mapping[str, Any], *, with_dagster: bool = False) -> str:
    """What the command prints. RuntimeError with its end if it fails."""
    process = start_command(world, options, with_dagster=with_dagster)
    try:
        said, _none = process.communicate(timeout=RUN_S_MAX)
    finally:
        process.kill()
    if process.returncode != 0:
        raise RuntimeError(f"the run of {options['job']} failed: {said[-2000:]}")
    return said
