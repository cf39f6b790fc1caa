"""Where workers follow the tables of a tortured Postgres: what their processes are told."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gobblin_assets.jobs.sink import roll_policy
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.postgres_log import slot_reader
from gobblin_assets.spec.job_parsing import parse_job
from gobblin_assets.spec.job_spec import JobSpec
from tests.support.changed_tables import JOB

_OFTEN_S: Final = 1.0


@dataclass(frozen=True)
class CdcSite:
    """``described``: the job. ``end``: the end of the source's log, once nobody writes; 0 before."""

    database_url: str
    described: Mapping[str, Any]
    environment: Mapping[str, str]
    urns: tuple[str, ...]
    end: int = 0

    def job(self) -> JobSpec:
        # Of each process of its own: positions without rows are cut, and the slot is confirmed, more often.
        roll_policy.EMPTY_CUT_AGE_S = _OFTEN_S  # type: ignore[misc]  # another value, for a process of tests
        slot_reader.CONFIRM_EVERY_S = _OFTEN_S  # type: ignore[misc]  # as above
        return parse_job(self.described)

    def is_published(self, stores: Stores) -> bool:
        states = stores.datasets.load(JobName(JOB), [DatasetUrn(urn) for urn in self.urns])
        marks = [key.watermark for state in states.values() for key in state.keys.values()]
        return len(marks) == len(self.urns) and all(at is not None and int(str(at.value)) >= self.end for at in marks)
