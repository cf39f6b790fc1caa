"""The ends of attempts whose ticket could not be read, or not be done."""

import os
import signal
import uuid
from types import SimpleNamespace
from typing import Any, Never, cast

import pytest

from gobblin_assets.errors import ErrorFamily, RejectedError, RetryableError
from gobblin_assets.jobs.ingest.engine_port import AnnouncedEngine
from gobblin_assets.model.job_ticket import JobTicket, SentTicket, TicketId, TicketShape, TicketVerb
from gobblin_assets.run.own_process import StopRequest
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.tickets import AttemptEnd, Claim
from gobblin_assets.tickets.interruption import Interruption
from gobblin_assets.tickets.ticket_run import run_claimed

SIGNAL_S_MAX = 150.0


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


class SentTickets(AwayTickets):
    """A log that has one ticket."""

    def __init__(self, verb: TicketVerb) -> None:
        super().__init__()
        job = JobTicket("gobblin-job:/any/any/any", "1", "sink.postgres_log", {"job": "any"}, TicketShape.WORKER)
        self._sent = SentTicket(TicketId(uuid.uuid4()), verb, "local", job)

    def get_claimed(self, _claim: Claim) -> Any:
        return self._sent

    def report(self, *_told: object) -> None:
        pass


@pytest.mark.parametrize("error", [RejectedError("is not set", field="X"), ValueError("of a library")])
@pytest.mark.parametrize(
    ("verb", "end"), [(TicketVerb.DELETE, AttemptEnd.DIED), (TicketVerb.UPDATE, AttemptEnd.FAILED)]
)
def test_a_delete_is_left_to_the_next_attempt_whatever_it_fails_with(
    verb: TicketVerb, end: AttemptEnd, error: Exception
) -> None:
    def fail() -> Never:
        raise error

    stores = cast("Stores", SimpleNamespace(tickets=SentTickets(verb)))
    claim = Claim(TicketId(uuid.uuid4()), 1)
    assert run_claimed(claim, stores, fail, lambda _said: None, Interruption()) is end


def test_a_signal_of_which_a_driver_makes_an_error_is_an_interruption(request: pytest.FixtureRequest) -> None:
    def fail() -> Never:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            StopRequest().wait(SIGNAL_S_MAX)
        except KeyboardInterrupt:
            raise ValueError("of a library") from None
        raise AssertionError("the signal was lost")

    tickets = SentTickets(TicketVerb.UPDATE)
    stores, interruption = cast("Stores", SimpleNamespace(tickets=tickets)), Interruption()
    # Of a process that a script began in the background, SIGINT is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with interruption.hearing_signals(), pytest.raises(KeyboardInterrupt):
        run_claimed(Claim(TicketId(uuid.uuid4()), 1), stores, fail, lambda _said: None, interruption)
    assert tickets.ended == [], "whoever takes the interruption reports the end"
    assert interruption.is_heard
