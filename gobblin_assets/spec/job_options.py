"""Options of every kind of job: those of runs, leases, retries and the log, and what each dataset has.

A sink of events gets its secrets from environment variables whose names begin with ``GOBBLIN_EVENTS_``. Others are
refused: else the author of a job could send the deployment's passwords anywhere.
"""

import difflib
from collections.abc import Sequence
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from gobblin_assets.commit.folding import DEFAULT_FOLD, FoldBounds
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.spec.spec_model import DAY_S, Moment, SpecModel, refused

VARIABLE_PREFIX: Final = "GOBBLIN_EVENTS_"

_OF_JSONL: Final = frozenset({"path"})
_OF_WEBHOOK: Final = frozenset({"url", "url_env", "token_env"})
_OPTIONS_BY_KIND: Final = {"jsonl": _OF_JSONL, "webhook": _OF_WEBHOOK}


class EventSinkSpec(SpecModel):
    """One sink of events. A new sink gets what is published from then on."""

    kind: str = Field(description="`jsonl`, `webhook`, or a kind that a package or a program registered.")
    name: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="By which the log knows what it got; default: the kind.",
    )
    files: bool = Field(True, description="Whether each file has an event, or only the datasets.")
    path: str | None = Field(None, description="jsonl: the file to append to, an absolute path.")
    url: str | None = Field(None, description="webhook: where batches of events are posted. No secret belongs here.")
    url_env: str | None = Field(None, description="webhook: the variable GOBBLIN_EVENTS_… that holds the URL instead.")
    token_env: str | None = Field(None, description="webhook: the variable GOBBLIN_EVENTS_… that holds a bearer token.")
    options: dict[str, Any] = Field(default_factory=dict, description="What a registered kind takes.")

    @property
    def known_as(self) -> str:
        return self.name or self.kind

    @model_validator(mode="after")
    def _fits_its_kind(self) -> "EventSinkSpec":
        given = {name for name in _OF_JSONL | _OF_WEBHOOK if getattr(self, name) is not None}
        allowed = _OPTIONS_BY_KIND.get(self.kind, frozenset())
        if given and not allowed:
            close = difflib.get_close_matches(self.kind, _OPTIONS_BY_KIND, n=1)
            raise refused(
                f"expected {' or '.join(_OPTIONS_BY_KIND)} where {min(given)} is written, found {self.kind!a}",
                option="kind",
                hint=f"Did you mean {close[0]!r}?" if close else "What another kind takes belongs under `options`.",
            )
        if given - allowed:
            name = min(given - allowed)
            raise refused(f"a sink of the kind {self.kind} has no {name}", option=name, hint="Take it out.")
        if self.options and allowed:
            raise refused(f"a sink of the kind {self.kind} has no options", option="options", hint="Take them out.")
        if self.kind == "jsonl" and (self.path is None or not self.path.startswith("/")):
            raise refused("expected an absolute path of a file", option="path", hint="Write it from / on.")
        if self.kind == "webhook":
            self._check_webhook()
        return self

    def _check_webhook(self) -> None:
        if (self.url is None) == (self.url_env is None):
            found = "neither" if self.url is None else "both"
            raise refused(f"expected either `url` or `url_env`, found {found}", option="url", hint="Write one of them.")
        for name in ("url_env", "token_env"):
            variable = getattr(self, name)
            if variable is not None and not variable.startswith(VARIABLE_PREFIX):
                # Not shown: it may be the secret itself.
                raise refused(
                    f"expected the name of a variable, which begins with {VARIABLE_PREFIX}; found something else",
                    option=name,
                    hint="Put the secret into a variable of such a name: others may hold what the sink must not get.",
                )
        if self.url is not None and not _is_plain(self.url):
            # Not shown: it may hold a login.
            raise refused(
                "expected an http:// or https:// URL without a login", option="url", hint="Put secrets into `url_env`."
            )


def _is_plain(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc


def require_distinct_names(sinks: Sequence[EventSinkSpec]) -> None:
    """``refused`` for two sinks of one name: the log would take them for one."""
    names = [each.known_as for each in sinks]
    for name in names:
        if names.count(name) > 1:
            raise refused(f"two sinks are called {name!r}", hint="Give each a `name` of its own.")


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
    """The bounds of a dataset in the commit log: old publications are folded into one, old history is removed."""

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
    """The options of a dataset of every kind of job."""

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
    """The options of every kind of job: one destination, many datasets; one multi_asset in Dagster."""

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
