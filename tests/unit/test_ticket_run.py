"""The end of an attempt whose ticket could not be read."""

import uuid
from types import SimpleNamespace
from typing import Any, Never, cast

from gobblin_assets.errors import ErrorFamily, RetryableError
from gobblin_assets.jobs.ingest.engine_port import AnnouncedEngine
from gobblin_assets.model.job_ticket import TicketId
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.tickets import AttemptEnd, Claim
from gobblin_assets.tickets.interruption import Interruption
from gobblin_assets.tickets.ticket_run import run_claimed


class AwayTickets:
    """A log that does not answer when the ticket is read, and does afterwards."""

    def __init__(self) -> None:
        self.ended: list[tuple[AttemptEnd, Any]] = []

    def get_claimed(self, _claim: Claim) -> Never:
        raise RetryableError("the log is away")

    def list_unreported(self, _ticket_id: TicketId) -> list[Never]:
        return []

    def end(self, _claim: Claim, end: AttemptEnd, details: dict[str, Any]) -> bool:
        self.ended.append((end, details["family"]))
        return True


def open_no_spark() -> AnnouncedEngine:
    raise AssertionError("nothing is run")


def test_a_ticket_that_could_not_be_read_is_left_to_the_next_attempt() -> None:
    tickets = AwayTickets()
    stores = cast("Stores", SimpleNamespace(tickets=tickets))
    claim = Claim(TicketId(uuid.uuid4()), 1)
    assert run_claimed(claim, stores, open_no_spark, lambda _said: None, Interruption()) is AttemptEnd.DIED
    assert tickets.ended == [(AttemptEnd.DIED, ErrorFamily.RETRYABLE)]
