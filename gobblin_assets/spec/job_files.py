"""Job files: a job's options in YAML, found by GOBBLIN_JOBS or beside the demo."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.spec.job_options import JobOptions
from gobblin_assets.spec.job_parsing import parse_any_job, parse_job
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.yaml_files import read_yaml_file

AnyJob = JobOptions | Mapping[str, object] | str | Path
"""A job of any kind, its options, or the path of its file."""

JOBS_VARIABLE: Final = "GOBBLIN_JOBS"

_DEFAULT_JOBS: Final = "demo/*.yaml"
_OF_NAMES: Final = "A job's name is its place in the log, on storage and in Dagster: give each a name of its own."
# Keys of a component's file for Dagster, beside the job's own options.
_COMPONENT_OPTIONS: Final = frozenset({"translation", "discovered", "executor", "resources"})


def list_job_files(environment: Mapping[str, str], folder: Path) -> list[Path]:
    """The files that GOBBLIN_JOBS names, joined as in PATH and relative to ``folder``; else those of the demo."""
    named = environment.get(JOBS_VARIABLE)
    if named is None:
        return sorted(folder.glob(_DEFAULT_JOBS))
    return [folder / part for part in named.split(os.pathsep) if part]


def read_job_file(path: str | Path) -> JobSpec:
    """``load_job`` for what only jobs that read rows can do. RejectedError for a job of another kind."""
    return parse_job(read_any_job_file(path))


def load_job(job: AnyJob) -> JobOptions:
    """Read and check a job of any kind: its options, the path of its file, or a job that was loaded before.

    RejectedError names the file, or the field in it.
    """
    return read_any_job_file(job) if isinstance(job, str | Path) else parse_any_job(job)


def read_any_job_file(path: str | Path) -> JobOptions:
    """The job in a YAML file: its options, or a component's file, whose ``attributes`` they are.

    A destination, or a source directory, that begins with ``./`` or ``../`` lies beside the file. RejectedError names
    the file, or the field in it.
    """
    path = Path(path)
    data = read_yaml_file(path)
    attributes = data.get("attributes") if isinstance(data, Mapping) and "type" in data else data
    if not isinstance(attributes, Mapping):
        raise RejectedError(
            f"expected a job's options in {path}, found {_name_found(attributes)}",
            field="job file",
            hint="Begin with `job: <name>`, or with a component's `type:` and `attributes:`.",
        )
    options = {key: value for key, value in attributes.items() if key not in _COMPONENT_OPTIONS}
    return parse_any_job(place_destination(options, path.absolute().parent))


def _name_found(value: object) -> str:
    """What stands in place of a mapping."""
    match value:
        case None:
            return "nothing"
        case str():
            return "a text"
        case list():
            return f"a list of {len(value)}"
        case _:
            return f"{value!a}"


def place_destination(options: Mapping[str, object], folder: Path) -> dict[str, object]:
    """The options; a destination or source that begins with ``./`` or ``../`` lies beside the file in ``folder``."""
    placed = dict(options)
    for name in ("destination", "source"):
        place = placed.get(name)
        if isinstance(place, str) and place.startswith(("./", "../")):
            placed[name] = os.path.normpath(folder.absolute() / place)
    return placed


def require_distinct_jobs(jobs: Sequence[JobOptions]) -> None:
    """RejectedError for two jobs of one name: they would share history, watermarks and files."""
    for name, places in _find_doubled(jobs, [job.destination for job in jobs]).items():
        raise RejectedError(_say_doubled(name, places), field="job", hint=_OF_NAMES)


@dataclass(frozen=True, slots=True)
class JobFiles:
    """``jobs``: those of the files that can be read, by file. ``refused``: a line for what is wrong with the others."""

    jobs: Mapping[Path, JobOptions]
    refused: Sequence[str]


def read_job_files(paths: Sequence[Path]) -> JobFiles:
    """All jobs that can be read. Of jobs of one name there is none: the name decides what a job goes on with."""
    jobs: dict[Path, JobOptions] = {}
    refused: list[str] = []
    for path in dict.fromkeys(paths):
        try:
            jobs[path] = read_any_job_file(path)
        except GobblinError as error:
            refused.append(say_refused(path, error))
    doubled = _find_doubled(list(jobs.values()), list(map(str, jobs)))
    refused += [f"{_say_doubled(name, files)}. {_OF_NAMES}" for name, files in doubled.items()]
    return JobFiles({path: job for path, job in jobs.items() if job.job not in doubled}, tuple(refused))


def say_refused(path: Path, error: GobblinError) -> str:
    """The error of a file in one line, which names the file."""
    said = " ".join(str(error).split())
    return said if str(path) in said else f"{path}: {said}"


def describe_missing_files(environment: Mapping[str, str], folder: Path) -> str:
    """In one line, why ``list_job_files`` gives none, and the fix."""
    is_set = JOBS_VARIABLE in environment
    found = (
        f"{JOBS_VARIABLE} names no file"
        if is_set
        else f"{JOBS_VARIABLE} is not set, and {folder} has no {_DEFAULT_JOBS}"
    )
    return f"There is no job: {found}. Set it to the paths of job files, such as jobs/a.yaml{os.pathsep}jobs/b.yaml."


def _find_doubled(jobs: Sequence[JobOptions], places: Sequence[str]) -> dict[str, list[str]]:
    """The names that several jobs have, with the places of those jobs."""
    found: dict[str, list[str]] = {}
    for job, place in zip(jobs, places, strict=True):
        found.setdefault(job.job, []).append(place)
    return {name: named for name, named in found.items() if len(named) > 1}


def _say_doubled(name: str, places: Sequence[str]) -> str:
    count = "two" if len(places) == 2 else len(places)
    return f"{count} jobs are called {name!r}: {' and '.join(places)}"
