"""Marker records of epochs in a topic: a record with the header ``gobblin-epoch``, one in every partition."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.kafka.cluster import TopicPartition
from gobblin_assets.sources.kafka.record_columns import ClientMessage, headers_of, offset_of_message

EPOCH_HEADER: Final = "gobblin-epoch"
"""Its value is the number of the epoch that ends here, in decimal digits."""

ALIGNMENT_S: Final = 300.0

_DIGITS_MAX: Final = 18
_SHOWN_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class MarkerBarriers:
    """Barriers are markers in the topic; ``alignment_s``: how long vnodes wait for the next marker of another one."""

    alignment_s: float = ALIGNMENT_S


def find_marker(messages: Sequence[ClientMessage]) -> int | None:
    """The place of the first record that has the header."""
    for place, headers in enumerate(map(headers_of, messages)):
        if headers is not None and any(name == EPOCH_HEADER for name, _value in headers):
            return place
    return None


def read_epoch(marker: ClientMessage, name: TopicPartition) -> int:
    """RejectedError for a header that is no number of an epoch."""
    values = [value for name, value in headers_of(marker) or () if name == EPOCH_HEADER]
    value = values[0] or b""
    if len(values) == 1 and value.isdigit() and len(value) <= _DIGITS_MAX and int(value) > 0:
        return int(value)
    found = " and ".join(repr((each or b"")[:_SHOWN_MAX]) for each in values)
    raise reject_marker(
        marker, name, f"expected one header {EPOCH_HEADER} with a whole number from 1 on, in digits, found {found}"
    )


def reject_marker(marker: ClientMessage, name: TopicPartition, message: str) -> RejectedError:
    offset = offset_of_message(marker)
    return RejectedError(
        f"{name}, offset {offset}: {message}",
        field="barriers",
        hint="Nothing from this record on was published. Correct the program that writes the markers; then "
        f"go on behind it: `gobblin-assets run JOB_FILE --start-at {name.partition}={offset + 1}`.",
        topic=name.topic,
        partition=name.partition,
        offset=offset,
    )
