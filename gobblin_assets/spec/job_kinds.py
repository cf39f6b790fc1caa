"""Kinds of jobs, by the word under ``kind`` in a job: each reads a job's options into a specification.

A package offers a kind by an entry point of the group ``gobblin_assets.job_kinds``. Its function may also write the
options of another kind, for jobs that are alike but for a few words.
"""

from collections.abc import Callable, Mapping
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.extensions import Extensions
from gobblin_assets.spec.job_options import JobOptions

ReadJob = Callable[[Mapping[str, object]], JobOptions]
"""Options as they were written, ``kind`` among them, to a specification; RejectedError names the field."""

DEFAULT_KIND: Final = "ingest"
"""The kind of jobs without ``kind``."""

COPY_KIND: Final = "distcp"
"""What commands ask a job's kind for: the specification of copies is imported by copies alone."""

JOB_KINDS: Final = Extensions[ReadJob](
    group="gobblin_assets.job_kinds",
    noun="kind of job",
    option="kind",
    accepts=callable,
    built_in={
        DEFAULT_KIND: "gobblin_assets.spec.job_parsing:read_ingestion",
        COPY_KIND: "gobblin_assets.jobs.copy.parsing:read_copy",
    },
    meant={
        **dict.fromkeys(("copy", "mirror", "sync", "files", "rsync", "file"), "distcp"),
        **{name: f"source: {{type: {name}}}" for name in ("jdbc", "kafka", "postgres_log")},
        **dict.fromkeys(("table", "tables", "rows", "etl", "elt", "extract"), DEFAULT_KIND),
    },
)


DATASETS_MAX: Final = 10_000
"""Of one job, as they are written: Dagster takes seconds to load so many assets."""


def read_options(options: Mapping[str, object]) -> JobOptions:
    """The specification by the job's kind. RejectedError for a kind that nothing installed offers."""
    if not isinstance(options, Mapping):
        raise RejectedError(
            f"expected a job's options, found a value of the type {type(options).__name__}",
            field="job",
            hint="Give a mapping; `load_job` also takes the path of a job's file.",
        )
    datasets = options.get("datasets")
    if isinstance(datasets, list | tuple) and len(datasets) > DATASETS_MAX:
        raise RejectedError(
            f"expected at most {DATASETS_MAX:,} datasets, found {len(datasets):,}",
            field="datasets",
            hint="Divide the job into several jobs, or let its source find them (`include`; of copies, `finder`).",
        )
    kind = options.get("kind", DEFAULT_KIND)
    if not isinstance(kind, str):
        raise RejectedError(
            f"expected a kind of job, found {kind!r}", field="kind", hint=f"Known: {', '.join(JOB_KINDS.list_names())}."
        )
    return JOB_KINDS.get(kind)(options)


def register_job_kind(name: str, read: ReadJob) -> None:
    """Make a kind known to this process only. RejectedError if the name is known already."""
    JOB_KINDS.register(name, read)
