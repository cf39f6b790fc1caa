"""Workers of one sink do the same to records: each says a digest of its job file and release; others are refused."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Final

from gobblin_assets import __version__
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_spec import DAGSTER_OPTIONS, DatasetSpec, JobSpec
from gobblin_assets.state.sinks import SinkWorkerRow

_LOOK_S: Final = 0.5
_BESIDE_TTL_S: Final = 2.0


def digest_configuration(job: JobSpec, specs: Mapping[DatasetUrn, DatasetSpec]) -> str:
    """A digest of what a worker does to records, without the numbers of lanes and workers."""
    said = {
        "release": __version__,
        "source": job.source.model_dump(mode="json"),
        "destination": job.destination,
        "sink": job.sink.model_dump(mode="json", exclude={"lanes", *DAGSTER_OPTIONS}),
        "into": None if job.into is None else job.into.model_dump(mode="json"),
        "datasets": {urn: spec.model_dump(mode="json") for urn, spec in sorted(specs.items())},
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def refuse_other(job: JobSpec, other: SinkWorkerRow) -> RejectedError:
    return RejectedError(
        f"{other.owner} works on the sink {job.job} by another job file or release, or on other datasets",
        field="sink",
        hint="Stop the workers that have the old one first: `gobblin-assets sink status` shows them.",
    )


def await_alike(
    job: JobSpec,
    specs: Mapping[DatasetUrn, DatasetSpec],
    stores: Stores,
    wait: Callable[[float], bool],
    say: Callable[[str], None],
) -> bool:
    """Wait for workers of another configuration to be gone, since one that was killed counts until its lease ends.

    False: ``wait`` said to stop. RejectedError if some are still alive when all leases of dead ones have ended.
    """
    configuration = digest_configuration(job, specs)
    deadline_s = time.monotonic() + job.lease.ttl_s + _BESIDE_TTL_S
    is_said = False
    while others := [
        each for each in stores.sink_workers.list_live(JobName(job.job)) if each.configuration != configuration
    ]:
        if time.monotonic() >= deadline_s:
            raise refuse_other(job, others[0])
        if not is_said:
            say(
                f"waits for {others[0].owner}, which has another job file, release or choice of datasets: if it is "
                f"dead, its lease ends within {job.lease.ttl_s:g} s"
            )
            is_said = True
        if wait(_LOOK_S):
            return False
    return True
