"""The port by which a run tells others what it published, or could not publish."""

from collections.abc import Collection
from typing import Final, Protocol

from gobblin_assets.model.state import DatasetId


class Events(Protocol):
    """The sinks of one job. Neither method fails a run: an event that can't be sent waits in the log, and is said."""

    def begin(self, dataset_ids: Collection[DatasetId]) -> None:
        """Before anything is published: sinks that are new are told of these datasets from now on."""
        ...

    def deliver(self) -> None:
        """Tell each sink of the job what it was not told, at least once."""
        ...


class _NoSinks:
    """``Events`` of a job without sinks."""

    def begin(self, dataset_ids: Collection[DatasetId]) -> None:
        pass

    def deliver(self) -> None:
        pass


NO_SINKS: Final[Events] = _NoSinks()
