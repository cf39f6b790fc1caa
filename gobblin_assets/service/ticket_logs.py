"""The logs of executors, to which tickets are sent, and which have their reports and what was published."""

from typing import Protocol

from gobblin_assets.model.job_ticket import LogId
from gobblin_assets.state.overview import Overview
from gobblin_assets.state.tickets import TicketStore


class TicketLogs(Protocol):
    """The commit logs of all executors, by the names that the topology gives them; "" is the service's own database."""

    def get_store(self, log: str) -> TicketStore:
        """RejectedError: this process has no URL for a log of this name."""
        ...

    def get_log_id(self, log: str) -> LogId:
        """Read anew: a log that was restored elsewhere has another id. RetryableError: the log is away."""
        ...

    def get_overview(self, log: str) -> Overview:
        """What the log has published. RejectedError as by ``get_store``."""
        ...
