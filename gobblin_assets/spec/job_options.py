"""Options of every kind of job: those of runs, leases, retries and the log, and what each dataset has."""

from typing import Literal

from pydantic import Field, field_validator

from gobblin_assets.commit.folding import DEFAULT_FOLD, FoldBounds
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.spec.event_sinks import EventSinkSpec, require_distinct_names
from gobblin_assets.spec.spec_model import DAY_S, Moment, SpecModel


class PartitionsSpec(SpecModel):
    """The asset's partitions. Time partitions are windows of the watermark column."""

    kind: PartitionKind = PartitionKind.NONE
    start: Moment | None = Field(None, description="Where the first window begins, for time partitions.")
    end: Moment | None = Field(None, description="Where the last window ends, for time partitions. Default: never.")
    zone: str = "UTC"
    keys: tuple[str, ...] = Field((), description="For static partitions.")
    column: str | None = Field(None, description="Column whose value is the key, for static and dynamic partitions.")
    name: str | None = Field(None, description="Name of the dynamic partitions definition.")


class RetrySpec(SpecModel):
    task_tries_max: int = Field(3, ge=1, le=100)
    back_off_s: float = Field(1.0, ge=0)
    back_off_max_s: float = Field(60.0, ge=0)


class LeaseSpec(SpecModel):
    ttl_s: float = Field(60.0, gt=0)
    wait_s: float = Field(
        30.0, ge=0, description="How long a command or program waits for a busy dataset. Runs of Dagster's take turns."
    )


class StreamSpec(SpecModel):
    """The pace of a stream, of `gobblin-assets stream` and of run configuration's `stream_s`: whichever comes first."""

    publish_every_s: float = Field(
        10.0, gt=0, allow_inf_nan=False, description="Publish new records this often; of copies: begin a run."
    )
    records_max: int = Field(
        1_000_000, ge=1, description="Publish at once when this many records wait; a publication has at most this many."
    )


class LogSpec(SpecModel):
    """What the commit log keeps of a dataset: old publications are folded into one, and old history is removed."""

    fold_keep: int = Field(DEFAULT_FOLD.keep, ge=0, description="This many of the newest publications stay unfolded.")
    fold_min: int = Field(
        DEFAULT_FOLD.count_min, ge=1, description="Fold when there are this many older publications; else once a day."
    )
    fold_age_s: float = Field(DEFAULT_FOLD.age_s, ge=0, description="Younger publications stay unfolded.")
    history_days: float = Field(
        DEFAULT_FOLD.history_s / DAY_S,
        gt=0,
        allow_inf_nan=False,
        description="Runs, aborted sequences and replaced publications without files are forgotten after this time.",
    )

    @property
    def bounds(self) -> FoldBounds:
        return FoldBounds(self.fold_keep, self.fold_min, self.fold_age_s, self.history_days * DAY_S)


class DatasetOptions(SpecModel):
    """What a dataset of every kind of job has."""

    urn: str | None = None
    partitions: PartitionsSpec = PartitionsSpec()
    group: str | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    description: str | None = None

    @property
    def finds_partitions(self) -> bool:
        """Whether the keys of static partitions were found at the source, and not written."""
        return False


class JobOptions(SpecModel):
    """What a job of every kind has: one destination, many datasets; one multi_asset in Dagster."""

    job: str
    kind: str
    destination: str = Field(description="Root directory, an absolute path or a file:// URI.")
    parallelism: int = Field(2, ge=1, le=64, description="Tasks that run at once on the driver.")
    retry: RetrySpec = RetrySpec()
    lease: LeaseSpec = LeaseSpec()
    stream: StreamSpec = StreamSpec()
    publish_tries_max: int = Field(5, ge=1, description="Failed publications after which a dataset is BLOCKED.")
    log: LogSpec = LogSpec()
    backfill: Literal["multi_run", "single_run"] = Field(
        "single_run",
        description="Whether a backfill in Dagster is one run, or a run for each partition: those take turns.",
    )
    description: str | None = None
    events: tuple[EventSinkSpec, ...] = Field(
        (), description="Where events of publications are sent, at least once: jsonl, webhook, or a registered kind."
    )

    @field_validator("events")
    @classmethod
    def _names_its_sinks(cls, sinks: tuple[EventSinkSpec, ...]) -> tuple[EventSinkSpec, ...]:
        require_distinct_names(sinks)
        return sinks

    @property
    def takes_all_partitions(self) -> bool:
        """Whether a run that names no partition takes all of them, instead of datasets without partitions."""
        return False
