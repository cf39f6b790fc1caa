"""Where workers follow the tables of a tortured Postgres: what their processes are told."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gobblin_assets.jobs.sink import sink_log, sink_rules
from gobblin_assets.model.state import DatasetState
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.postgres_log import slot_reader
from gobblin_assets.sources.postgres_log.log_starts import copy_of
from gobblin_assets.spec.job_parsing import parse_job
from gobblin_assets.spec.job_spec import JobSpec
from tests.support.changed_tables import JOB

_OFTEN_S: Final = 1.0
_LOOK_EVERY_S: Final = 5.0


@dataclass(frozen=True)
class CdcSite:
    """``described``: the job. ``end``: the end of the source's log, once nobody writes; 0 before."""

    database_url: str
    described: Mapping[str, Any]
    environment: Mapping[str, str]
    urns: tuple[str, ...]
    end: int = 0

    def job(self) -> JobSpec:
        # Of each process of its own: positions without rows are cut, the slot is confirmed, and the tables
        # are looked at, more often.
        sink_rules.EMPTY_CUT_AGE_S = _OFTEN_S  # type: ignore[misc]  # another value, for a process of tests
        slot_reader.CONFIRM_EVERY_S = _OFTEN_S  # type: ignore[misc]  # as above
        sink_log.DISCOVER_EVERY_S = _LOOK_EVERY_S  # type: ignore[misc]  # as above
        return parse_job(self.described)

    def is_published(self, stores: Stores) -> bool:
        states = stores.datasets.load(JobName(JOB), [DatasetUrn(urn) for urn in self.urns])
        return len(states) == len(self.urns) and all(self._reaches_end(state) for state in states.values())

    def _reaches_end(self, state: DatasetState) -> bool:
        """By its newest copy."""
        newest = max(state.keys, key=lambda key: copy_of(key[0]), default=None)
        at = None if newest is None else state.keys[newest].watermark
        return at is not None and int(str(at.value)) >= self.end
