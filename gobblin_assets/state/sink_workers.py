"""The live workers of sinks. Who counts them knows its fair share of the lanes; nobody assigns lanes.

Being counted protects nothing: a lane's lease says who may publish.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import JobName


@dataclass(frozen=True, slots=True)
class SinkWorkerRow:
    """``configuration``: a digest of what the worker does to records; workers of one sink agree.

    ``is_drained``: somebody asked the worker to end behind a cut.
    """

    run_id: RunId
    owner: str
    configuration: str
    is_drained: bool = False


class SinkWorkerStore(Protocol):
    """Implemented by ``state.postgres``."""

    def beat(self, job: JobName, worker: SinkWorkerRow, *, ttl_s: float) -> Sequence[SinkWorkerRow]:
        """Count the worker for ``ttl_s`` more; returns the job's live workers, itself included, in a fixed order."""
        ...

    def list_live(self, job: JobName) -> Sequence[SinkWorkerRow]: ...

    def drain(self, job: JobName) -> int:
        """Ask the workers that live now to end behind a cut; returns how many."""
        ...

    def leave(self, run_id: RunId) -> None: ...
