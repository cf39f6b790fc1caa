"""Tickets that come by a topic, as a port: the place in the topic is in the log, beside the tickets.

A ticket and the place behind it are one transaction, so each record of the topic is put into the log once, wherever
its reader dies. Reports are told at least once: whoever hears of them knows each by ticket, attempt and number.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gobblin_assets.model.job_ticket import SentTicket, TicketId
from gobblin_assets.state.tickets import TicketOutput, TicketReport


@dataclass(frozen=True, slots=True)
class WirePlace:
    """A record of a topic of an executor's tickets. ``topic_id``: of a topic that was made anew, another one."""

    executor: str
    topic: str
    topic_id: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class WiredTicket:
    """A ticket whose sender is to be told something. ``told``: the (attempt, number) that it was told of last.

    ``is_received_told``: it knows that the ticket is here. ``refusal``: why a ticket of this id was refused.
    """

    ticket_id: TicketId
    told: tuple[int, int]
    is_received_told: bool
    refusal: Mapping[str, Any] | None
    reports: tuple[TicketReport, ...]


class WireStore(Protocol):
    """Each method is one transaction, by the log's clock."""

    def hold(self, executor: str, owner: str, *, ttl_s: float) -> bool:
        """Whether this process reads and tells for the executor, for so long. It saves work, and no more."""
        ...

    def list_places(self, executor: str, topic: str, topic_id: str) -> Mapping[int, int]:
        """By partition, the offset that is read next; nothing for partitions of which nothing was read."""
        ...

    def receive(self, place: WirePlace, sent: SentTicket) -> None:
        """Put the ticket into the log, and go on behind its record. Nothing, if the record was passed before.

        Its reports are told anew if it was here: whoever sends it again lacks some. Errors as by ``TicketStore.send``.
        """
        ...

    def refuse(self, place: WirePlace, ticket_id: TicketId, refusal: Mapping[str, Any]) -> None:
        """Have the sender told why, and go on behind the record."""
        ...

    def skip(self, place: WirePlace) -> None:
        """Go on behind a record that is done with."""
        ...

    def list_untold(self, executor: str, *, limit: int) -> Sequence[WiredTicket]:
        """``limit``: of reports. By ticket, attempt and number."""
        ...

    def note_told(self, executor: str, told: Sequence[WiredTicket]) -> None:
        """Those that ``list_untold`` gave were told. A ticket that came again meanwhile is told anew.

        Tickets that have ended, and of which all was told, are not watched any more after a minute.
        """
        ...

    def list_changed_outputs(
        self, executor: str, after: dt.datetime | None, *, limit: int
    ) -> Sequence[tuple[TicketId, TicketOutput]]:
        """What processes said behind this time, the oldest first."""
        ...
