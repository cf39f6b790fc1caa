"""The engine's requirements on a job and its datasets.

The types are structural: a specification satisfies them by its fields, and the engine knows no specification.
"""

from typing import Literal, Protocol

from gobblin_assets.commit.folding import FoldBounds
from gobblin_assets.model.policy import CommitPolicy


class RetryRules(Protocol):
    """The tries of a task: how many, and how long is waited between two tries: doubled each time, up to a bound."""

    @property
    def task_tries_max(self) -> int: ...
    @property
    def back_off_s(self) -> float: ...
    @property
    def back_off_max_s(self) -> float: ...


class LeaseRules(Protocol):
    """The times of leases: how long one lives without a heartbeat, how long a run by hand waits for a busy dataset."""

    @property
    def ttl_s(self) -> float: ...
    @property
    def wait_s(self) -> float: ...


class StreamRules(Protocol):
    """The pace of a stream: it publishes every so many seconds, or when so many records wait."""

    @property
    def publish_every_s(self) -> float: ...
    @property
    def records_max(self) -> int: ...


class PackerRules(Protocol):
    """The packing of WorkUnits into MultiWorkUnits; loads and capacities are in what ``WorkUnit.weight`` counts."""

    @property
    def type(self) -> Literal["single_level", "bi_level", "topic_grouping"]: ...
    @property
    def container_capacity(self) -> float: ...
    @property
    def capacity_strategy(self) -> Literal["min", "max", "mean", "median"]: ...
    @property
    def containers_min(self) -> int: ...


class SplitRules(Protocol):
    """Rules of a dataset: how many tasks a run may have, and how many rows justify one task."""

    @property
    def max_multi_work_units(self) -> int: ...
    @property
    def task_rows_min(self) -> int: ...


class LogRules(Protocol):
    """The rules of what the commit log keeps."""

    @property
    def bounds(self) -> FoldBounds: ...


class CompactionRules(Protocol):
    """The rules that choose partitions to be rewritten with fewer, larger files."""

    @property
    def files_min(self) -> int: ...
    @property
    def file_bytes_target(self) -> int: ...
    @property
    def quiet_s(self) -> float: ...
    @property
    def partitions_per_run_max(self) -> int: ...


class JobRules(Protocol):
    """The fields of a job that a run needs. ``destination`` is the URI of its root."""

    @property
    def job(self) -> str: ...
    @property
    def destination(self) -> str: ...
    @property
    def commit_policy(self) -> CommitPolicy: ...
    @property
    def parallelism(self) -> int: ...
    @property
    def rows_per_s_max(self) -> float | None: ...
    @property
    def publish_tries_max(self) -> int: ...
    @property
    def retire_grace_s(self) -> float: ...
    @property
    def retry(self) -> RetryRules: ...
    @property
    def lease(self) -> LeaseRules: ...
    @property
    def packer(self) -> PackerRules: ...
    @property
    def stream(self) -> StreamRules: ...
    @property
    def log(self) -> LogRules: ...
    @property
    def compaction(self) -> CompactionRules | None: ...
