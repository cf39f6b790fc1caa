"""Options of a run of a job's assets beside its selection: run configuration and tags."""

import datetime as dt
import math
from collections.abc import Mapping
from typing import Final, Protocol

import dagster as dg

from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy.copy_spec import CopySpec
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.job_kind import Restart, StartAt
from gobblin_assets.spec.partition_keys import open_partition
from gobblin_assets.spec.source_kind import kind_of

MODE_TAG: Final = "gobblin/mode"
ASKED_AGAIN_TAG: Final = "gobblin/asked_again"
"""Of the runs that a job's own sensors ask for, and ask for again as long as their datasets are not published."""
SINK_TAG: Final = "gobblin/sink"
"""Of workers of a sink; its value is the job. A limit on concurrent runs with this tag leaves slots to other runs."""
CONFIRM_DELETES_TAG: Final = "gobblin/confirm_deletes"

# A schedule, sensor or condition launched a run with one of these tags. A person's backfill has none of them.
_AUTOMATION_TAGS: Final = frozenset({
    "dagster/sensor_name",
    "dagster/schedule_name",
    "dagster/auto_materialize",
    "dagster/from_automation_condition",
})  # fmt: skip


class GobblinRunConfig(dg.Config):
    """Run configuration of a job's assets. ``mode``: append, refresh or auto; default: the tag, else auto.

    ``restart``, for topics, only in this run: start_over (as if they had never been read) or move_to_latest (leave out
    their present records). ``start_at``, for one topic, only in this run: the offsets to go on from, by partition
    number. ``stream_s``, for topics and copies: follow them for this many seconds at the job's ``stream`` pace, instead
    of reading once. A retry of the run follows them for the same time again. ``confirm_deletes``, for copies: remove
    what the source lost all at once, too; default: the tag, else False.
    """

    mode: str | None = None
    restart: str | None = None
    start_at: dict[str, int] | None = None
    stream_s: float | None = None
    sink_s: float | None = None
    confirm_deletes: bool | None = None


def is_by_hand(tags: Mapping[str, str]) -> bool:
    """Whether a person, or a backfill that a person started, asked for the run."""
    return _AUTOMATION_TAGS.isdisjoint(tags)


def waits_for_turn(tags: Mapping[str, str]) -> bool:
    """Whether the run waits for datasets that others hold.

    One that is asked for again fails instead: its other datasets count as busy for as long as it goes on.
    """
    return ASKED_AGAIN_TAG not in tags


def decide_restart(config: GobblinRunConfig, layout: JobLayout, *, topic_count: int) -> Restart | StartAt | None:
    """The restart of topics in the run config. RejectedError for an unknown value, or if the job reads tables."""
    if config.restart is None and config.start_at is None:
        return None
    field = "restart" if config.start_at is None else "start_at"
    kind = None if layout.source is None else kind_of(layout.source)
    if kind is None or not kind.is_log:
        reads = "reads none" if kind is None else f"reads {kind.noun}s"
        raise RejectedError(
            f"is for topics, and {layout.job.job} {reads}", field=field, hint="Use mode: refresh for these."
        )
    if config.start_at is not None:
        return _read_starts(config.start_at, is_alone=config.restart is None and topic_count == 1)
    try:
        return Restart(config.restart or "")
    except ValueError:
        raise RejectedError(
            f"expected one of {', '.join(each.value for each in Restart)}, found {config.restart!r}",
            field=field,
            hint="Correct it, or leave it out.",
        ) from None


def _read_starts(given: Mapping[str, int], *, is_alone: bool) -> StartAt:
    if not is_alone:
        raise RejectedError(
            "offsets are those of one topic, and nothing else is asked of it",
            field="start_at",
            hint="Select one topic, and leave restart out.",
        )
    wrong = [name for name, offset in given.items() if not name.isdecimal() or offset < 0]
    if wrong or not given:
        raise RejectedError(
            f"expected offsets by numbers of partitions, found {dict(given)!r}",
            field="start_at",
            hint='Write it like {"0": 1500, "1": 0}.',
        )
    return StartAt({int(name): offset for name, offset in given.items()})


def decide_run_mode(configured: str | None, tags: Mapping[str, str]) -> Mode:
    """The mode in run config or tag. RejectedError if it is unknown, or if both contradict each other."""
    tagged = tags.get(MODE_TAG)
    if configured is not None and tagged is not None and configured != tagged:
        raise RejectedError(
            f"the run config says {configured!r} and the tag {MODE_TAG} says {tagged!r}",
            field="mode",
            hint="Give one of them.",
        )
    text = configured or tagged or Mode.AUTO.value
    try:
        return Mode(text)
    except ValueError:
        raise RejectedError(
            f"expected one of {', '.join(mode.value for mode in Mode)}, found {text!r}",
            field="mode",
            hint=f"Correct the run config's `mode`, or the tag {MODE_TAG}.",
        ) from None


def decide_confirmation(config: GobblinRunConfig, tags: Mapping[str, str], layout: JobLayout) -> bool:
    """Whether a person confirms the removals that were stopped. RejectedError if the job copies no files."""
    tagged = tags.get(CONFIRM_DELETES_TAG)
    if tagged not in {None, "true", "false"}:
        raise RejectedError(
            f"expected true or false in the tag {CONFIRM_DELETES_TAG}, found {tagged!r}",
            field="confirm_deletes",
            hint="Correct it, or leave it out.",
        )
    is_asked = tagged == "true" if config.confirm_deletes is None else config.confirm_deletes
    if is_asked and not isinstance(layout.job, CopySpec):
        raise RejectedError(
            f"is for copies, and {layout.job.job} copies no files", field="confirm_deletes", hint="Leave it out."
        )
    return is_asked


def require_stream(
    config: GobblinRunConfig,
    tags: Mapping[str, str],
    layout: JobLayout,
    selection: Mapping[DatasetUrn, tuple[AssetPartition, ...]],
    *,
    made_at: dt.datetime | None = None,
) -> None:
    """RejectedError unless ``stream_s`` and the other options of the run fit together.

    ``made_at`` is aware: when the run was made; its windows may be those that were open then.
    """
    _require_alone("stream_s", config.stream_s, config, tags)
    if config.sink_s is not None:
        raise RejectedError(
            "a run is a stream, or a worker of a sink", field="stream_s", hint="Leave it out, or leave sink_s out."
        )
    if layout.program.repeats_runs:
        # Each run takes the selected partitions; no window is open or closed to it.
        return
    _require_open("stream_s", layout, selection, made_at)


class RequireOptions(Protocol):
    """The check of a worker's options: ``require_sink``, or ``require_follows``."""

    def __call__(
        self,
        config: GobblinRunConfig,
        tags: Mapping[str, str],
        layout: JobLayout,
        selection: Mapping[DatasetUrn, tuple[AssetPartition, ...]],
        *,
        made_at: dt.datetime | None = None,
    ) -> None: ...


def require_follows(
    config: GobblinRunConfig,
    tags: Mapping[str, str],
    layout: JobLayout,
    selection: Mapping[DatasetUrn, tuple[AssetPartition, ...]],
    *,
    made_at: dt.datetime | None = None,
) -> None:
    """RejectedError unless a run without ``sink_s`` can follow the change log from where it is; ``made_at`` as above.

    ``selection``: what the run names; empty if it names no partition.
    """
    for field in ("restart", "start_at"):
        if getattr(config, field) is not None:
            raise RejectedError(
                "is for topics, and a change log goes on from where it is",
                field=field,
                hint="Leave it out. To begin anew: gobblin-assets sink recopy.",
            )
    if decide_run_mode(config.mode, tags) is Mode.REFRESH:
        raise RejectedError(
            "a change log has every change once, and nothing of it is written anew",
            field="mode",
            hint="Leave it out. To begin anew: gobblin-assets sink recopy.",
        )
    _require_open("partition", layout, selection, made_at)


def require_sink(
    config: GobblinRunConfig,
    tags: Mapping[str, str],
    layout: JobLayout,
    selection: Mapping[DatasetUrn, tuple[AssetPartition, ...]],
    *,
    made_at: dt.datetime | None = None,
) -> None:
    """RejectedError unless ``sink_s`` and the other options of the run fit together; ``made_at`` as above.

    ``selection``: what the run names; empty if it names no partition.
    """
    _require_alone("sink_s", config.sink_s, config, tags)
    _require_open("sink_s", layout, selection, made_at)


def _require_alone(field: str, seconds: float | None, config: GobblinRunConfig, tags: Mapping[str, str]) -> None:
    if seconds is None or not (math.isfinite(seconds) and seconds > 0):
        raise RejectedError(
            f"expected a number of seconds above 0, found {seconds!r}",
            field=field,
            hint="Leave it out to run once.",
        )
    once = config.restart is not None or config.start_at is not None
    if once or decide_run_mode(config.mode, tags) is Mode.REFRESH:
        raise RejectedError(
            "a stream goes on from the watermarks, and the run asks for something else as well",
            field=field,
            hint="Leave mode, restart and start_at out, or have a run of their own for them first.",
        )


def _require_open(
    field: str,
    layout: JobLayout,
    selection: Mapping[DatasetUrn, tuple[AssetPartition, ...]],
    made_at: dt.datetime | None,
) -> None:
    now = dt.datetime.now(dt.UTC)
    for urn, partitions in selection.items():
        window = open_partition(layout.datasets[urn], now)
        if partitions not in ((window,), (open_partition(layout.datasets[urn], made_at or now),)):
            raise RejectedError(
                f"a stream of {urn} reads into the window that is open, {window.key}, and others were selected",
                field=field,
                hint="Select that one; when it is over, the stream goes on in the next.",
            )


def find_stream_s(run_config: Mapping[str, object], job: JobName) -> float | None:
    """How long a Dagster run of the job follows topics, in seconds; None for a run that reads once."""
    return _find_seconds(run_config, job, "stream_s")


def find_sink_s(run_config: Mapping[str, object], job: JobName) -> float | None:
    """How long a Dagster run is a worker of the job's sink, in seconds; None if it is none."""
    return _find_seconds(run_config, job, "sink_s")


def _find_seconds(run_config: Mapping[str, object], job: JobName, name: str) -> float | None:
    found: object = run_config
    for each in ("ops", str(job), "config", name):
        found = found.get(each) if isinstance(found, Mapping) else None
    return float(found) if isinstance(found, int | float) else None
