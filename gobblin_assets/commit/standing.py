"""Moves that leave ledger and watermarks as they are, to publish another generation of the same rows."""

from collections.abc import Iterable

from gobblin_assets.commit.folding import join_intervals
from gobblin_assets.commit.sequence import KeyMove, PublishedInterval
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.watermark import Watermark


def stand(
    key: str,
    partition: str,
    watermark: Watermark | None,
    intervals: Iterable[PublishedInterval],
    *,
    is_generation: bool,
) -> KeyMove:
    """The move of one key. RejectedError for a key that a snapshot and intervals share."""
    joined = tuple(join_intervals(intervals))
    if joined and is_generation:
        raise RejectedError(
            f"the key {key!r} was published by a snapshot and by intervals",
            field="partition",
            hint="Materialize it with --mode refresh.",
        )
    return KeyMove(key, partition, old=watermark, new=None, intervals=joined)
