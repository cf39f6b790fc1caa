"""The port of watches over logs, for sensors: what is new in them, and which there are, without reading records."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gobblin_assets.errors import GobblinError
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.lag import Lag, Unread, measure_lag
from gobblin_assets.sources.source_port import SourceRequest


@dataclass(frozen=True, slots=True)
class LogNews:
    """What a run would find in a log now.

    ``begins``: some position is still to be set, by the rule for a log's first run. ``unread`` omits offsets that this
    rule finds by a time, since no time is asked for here. ``mark`` tells whether a run got any further: it changes
    whenever a position with something unread behind it moves.
    """

    unread: Unread
    begins: bool
    mark: str

    @property
    def count(self) -> int:
        return sum(end - first for first, end in self.unread.values())

    @property
    def lag(self) -> Lag | None:
        return measure_lag(self.unread)


class LogWatch(Protocol):
    """A watch over the logs of one connection, which is opened by the first question."""

    def find_news(self, requests: Sequence[SourceRequest]) -> dict[DatasetUrn, LogNews | GobblinError]:
        """By URN, what is new, or the error that planning would end with. One question to the source.

        Raises:
            RejectedError: the source refuses the login.
            RetryableError: it does not answer.

        """
        ...

    def list_names(self) -> list[str]:
        """The names of all logs, sorted. Raises as ``find_news`` does."""
        ...
