"""Ends of tickets and attempts that whoever looks after an inbox reports, in place of a process that can't."""

from collections.abc import Callable
from contextlib import suppress

from gobblin_assets.errors import FencedError
from gobblin_assets.model.job_ticket import TicketVerb
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.tickets import AttemptEnd, Claim, OpenTicket, describe_unanswered
from gobblin_assets.tickets.ticket_run import describe_end, report_missed


def give_up_ticket(ticket: OpenTicket, stores: Stores, say: Callable[[str], None]) -> None:
    """End a ticket whose attempts are used up."""
    report_all_missed(Claim(ticket.ticket_id, ticket.last_attempt), stores)
    said = f"{ticket.attempts} attempts died"
    if ticket.verb is TicketVerb.PROBE:
        said = describe_unanswered(is_claimed=ticket.last_attempt > 0)
    if stores.tickets.give_up(ticket.ticket_id, describe_end(said, hint="Read the executor's own log.")):
        say(f"ticket {ticket.ticket_id}: {said}")


def end_dead_attempt(claim: Claim, stores: Stores, end: AttemptEnd, said: str) -> bool:
    """End an attempt whose process is dead, with the leases that it held. False: it has ended."""
    # No later attempt may come that would tell of them.
    report_all_missed(claim, stores)
    end_dead_run(claim, stores, said)
    return stores.tickets.end(claim, end, describe_end(said))


def end_dead_run(claim: Claim, stores: Stores, said: str) -> None:
    """End the leases that a dead process held: the next attempt does not wait until they run out.

    Before the attempt's end is reported, so that whoever dies between repeats both.
    """
    if (run_id := stores.tickets.find_run(claim)) is not None:
        stores.leases.end_dead_run(run_id, said)
        stores.sink_workers.leave(run_id)


def report_all_missed(claim: Claim, stores: Stores) -> None:
    """``report_missed`` of an attempt that may have ended: then the ticket's next report is that of its end."""
    with suppress(FencedError):
        report_missed(claim, stores)
