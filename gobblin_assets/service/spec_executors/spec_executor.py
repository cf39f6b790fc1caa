"""The port to a running executor, by the names that Gobblin gave it."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from gobblin_assets.model.job_ticket import SentTicket, TicketId
from gobblin_assets.service.executor_health import ExecutorHealth
from gobblin_assets.service.published_jobs import PastExecution


class SpecExecutor(Protocol):
    """An executor of the topology. What asks it is a future: the way to it may be slow, or down.

    A future's error is one of ours: RetryableError or OutcomeUnknownError where the way is down.
    """

    def get_uri(self) -> str: ...

    def get_description(self) -> Future[str]: ...

    def get_config(self) -> Future[Mapping[str, Any]]:
        """Its options in the topology: technology, location, communication and the others."""
        ...

    def get_health(self) -> Future[ExecutorHealth]: ...

    def get_capabilities(self) -> Future[frozenset[str]]:
        """The words for what it does: those that the topology allows it, and that its packages have."""
        ...

    def add_job(self, sent: SentTicket) -> Future[None]:
        """Durable at the executor once the future has a result. ConflictError as by ``TicketWire.send``."""
        ...

    def update_job(self, sent: SentTicket) -> Future[None]:
        """The same of an UPDATE: what older tickets started for the job ends first."""
        ...

    def delete_job(self, sent: SentTicket) -> Future[TicketId | None]:
        """Send a CANCEL or a DELETE. The ticket that somebody still works on, and that ends later; None: none."""
        ...

    def list_jobs(self) -> Future[Sequence[PastExecution]]:
        """Those that were sent to it and have not ended, as far as the service knows, the oldest first."""
        ...
