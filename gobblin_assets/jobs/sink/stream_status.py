"""The status of a stream's datasets: how far they are, beside what the stream's server says of it."""

import datetime as dt
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gobblin_assets.jobs.sink.sink_rules import is_one_stream
from gobblin_assets.model.state import DatasetState
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.progress import MIB
from gobblin_assets.sources.connection import OpensEpochs
from gobblin_assets.sources.log_port import CopiedLog, StreamLook
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.state.sinks import DatasetLook

_MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class DatasetStatus:
    """The progress of a dataset of a stream. ``copy``: of the newest one that was begun.

    ``position``: as the server writes places; None: it is to be copied. ``progress``: of a copy that is published in
    part.

    ``lag_bytes``: of the server's log behind the position, also of what is of other tables. ``lag_s``: everything that
    was committed before is published. None: not known. ``key``: the columns by which the source tells rows apart.
    """

    copy: int | None = None
    position: str | None = None
    lag_bytes: int | None = None
    lag_s: float | None = None
    progress: str | None = None
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """A stream, and its datasets that a worker has registered."""

    stream: StreamLook
    datasets: Mapping[DatasetUrn, DatasetStatus]

    @property
    def kept_for(self) -> list[DatasetUrn]:
        """The datasets for which the server keeps most of its log: those that are furthest behind, or to be copied."""
        lags = {urn: math.inf if each.lag_bytes is None else each.lag_bytes for urn, each in self.datasets.items()}
        most = max(lags.values(), default=0)
        return [urn for urn, lag in lags.items() if lag == most and lag]


def say_kept(stream: StreamLook) -> str:
    """A sentence on what the server keeps for the stream, and up to where; for people."""
    kept = f"the server keeps {(stream.retained_bytes or 0) / MIB:,.0f} MiB of its log for the slot {stream.name}"
    if stream.safe_bytes is None:
        return f"{kept}, without a bound (max_slot_wal_keep_size)"
    return f"{kept}, and gives the slot up after {stream.safe_bytes / MIB:,.0f} MiB more"


def open_copied_logs(
    job: JobSpec, specs: Mapping[DatasetUrn, DatasetSpec], connection: OpensEpochs
) -> Mapping[DatasetUrn, CopiedLog]:
    """The copied logs of a stream; none if the job's datasets have logs of their own. Nothing is connected to."""
    sources = {urn: connection.open_epochs(job, urn, spec) for urn, spec in specs.items()} if is_one_stream(job) else {}
    return {urn: source for urn, source in sources.items() if isinstance(source, CopiedLog)}


def find_stream_status(
    job: JobSpec,
    specs: Mapping[DatasetUrn, DatasetSpec],
    connection: OpensEpochs,
    states: Mapping[DatasetUrn, DatasetState],
    looks: Mapping[DatasetUrn, DatasetLook],
) -> StreamStatus | None:
    """The status of the job's stream.

    None: the datasets have logs of their own, or there are none. ``looks`` were taken before ``states``. RejectedError,
    or RetryableError if the stream's server is out of reach.
    """
    copied = open_copied_logs(job, specs, connection)
    if not copied:
        return None
    stream = next(iter(copied.values())).look_at_stream()
    return StreamStatus(
        stream,
        {urn: _stand(copied[urn], stream, state, looks.get(urn)) for urn, state in states.items() if urn in copied},
    )


def _stand(source: CopiedLog, stream: StreamLook, state: DatasetState, look: DatasetLook | None) -> DatasetStatus:
    place = source.find_place(state)
    if place is None:
        return DatasetStatus()
    if place.position is None or stream.end is None:
        return DatasetStatus(place.copy, place.text, progress=place.progress, key=place.key)
    behind = max(0, stream.end - place.position)
    return DatasetStatus(place.copy, place.text, behind, _find_age(look) if behind else 0.0, key=place.key)


def _find_age(look: DatasetLook | None) -> float | None:
    """The seconds since the barrier of the newest publication. Epochs of a stream are microseconds since 1970."""
    epochs = [lane.epoch for lane in look.lanes if lane.epoch] if look is not None else []
    if look is None or not epochs:
        return None
    at = dt.datetime.fromtimestamp(max(epochs) / _MICROS, dt.UTC)
    return round(max(0.0, (look.now - at).total_seconds()), 3)
