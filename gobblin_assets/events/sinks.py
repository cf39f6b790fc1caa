"""The port of a sink of events, and the kinds of sinks.

A package offers a kind by an entry point of the group ``gobblin_assets.event_sinks``, or a program registers one:

    register_event_sink("pager", lambda spec: FunctionSink(page))
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from gobblin_assets.errors import GobblinError, RetryableError
from gobblin_assets.extensions import Extensions
from gobblin_assets.spec.job_options import EventSinkSpec

Event = Mapping[str, object]
"""Fit for JSON."""


class EventSink(Protocol):
    """Used by one thread at a time."""

    def send(self, events: Sequence[Event]) -> None:
        """Return once the receiver has all of them. A family of GobblinError: it may have some, or none."""
        ...


@dataclass(frozen=True, slots=True)
class FunctionSink:
    """Hands each batch to a function. Whatever the function raises leaves the batch to a later run."""

    function: Callable[[Sequence[Event]], None]

    def send(self, events: Sequence[Event]) -> None:
        try:
            self.function(events)
        except GobblinError:
            raise
        except Exception as error:
            raise RetryableError(f"the function raised {type(error).__name__}: {error}") from error


SinkFactory = Callable[[EventSinkSpec], EventSink]
"""Connects to nothing. RejectedError for options that can't be meant."""


EVENT_SINKS: Final = Extensions[SinkFactory](
    group="gobblin_assets.event_sinks",
    noun="kind of event sink",
    option="events.kind",
    accepts=callable,
    built_in={
        "jsonl": "gobblin_assets.events.jsonl:open_jsonl",
        "webhook": "gobblin_assets.events.webhook:open_webhook",
    },
)


def register_event_sink(kind: str, factory: SinkFactory) -> None:
    """Make a kind known to this process only. RejectedError if the kind is known already."""
    EVENT_SINKS.register(kind, factory)


def open_sink(spec: EventSinkSpec) -> EventSink:
    """Whatever a kind raises, a caller gets one of the error families. RejectedError for a kind that nobody offers."""
    factory = EVENT_SINKS.get(spec.kind)
    try:
        return _Guarded(spec.kind, factory(spec))
    except GobblinError:
        raise
    except Exception as error:  # noqa: BLE001  of a package or a program
        raise _failed(spec.kind, error) from None


@dataclass(frozen=True, slots=True)
class _Guarded:
    """A sink whose errors are of the families."""

    kind: str
    sink: EventSink

    def send(self, events: Sequence[Event]) -> None:
        try:
            self.sink.send(events)
        except GobblinError:
            raise
        except Exception as error:  # noqa: BLE001  of a package or a program
            raise _failed(self.kind, error) from None


def _failed(kind: str, error: Exception) -> RetryableError:
    """Without the text, which may hold a secret of the receiver."""
    return RetryableError(
        f"a sink of the kind {kind!r} raised {type(error).__name__}",
        hint="Its package should raise a family of gobblin_assets.errors, which says what to do.",
    )
