"""Heartbeats of the executors that work with a log, as a port."""

from collections.abc import Sequence
from typing import Protocol

from gobblin_assets.model.executor_heartbeat import ExecutorHeartbeat, HeardHeartbeat


class HeartbeatStore(Protocol):
    """Each method is one transaction, by the log's clock."""

    def beat(self, beat: ExecutorHeartbeat) -> None:
        """Put the heartbeat in the place of the owner's one before. Those that are a day old go.

        The last one of an executor stays, however old it is: the executor was there.
        """
        ...

    def list_heartbeats(self) -> Sequence[HeardHeartbeat]:
        """Of each process the last one, by executor, the latest first. What can't be read is left out, and told.

        While the log drains, nobody is WORKING, whatever its release says.
        """
        ...
