"""Which batch of which query is a dataset's next one, was published before, or is refused."""

import uuid
from collections.abc import Mapping
from dataclasses import replace

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.state import DatasetId, DatasetState, KeyId, KeyState, LaneId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.sources.spark_stream.batch_decision import QueryBatch, is_published, key_of, remember_batch

OLD, NEW = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


def state(published: Mapping[str, int], last: QueryBatch | None = None) -> DatasetState:
    """``published``: the last batch of each query. ``last``: the last of all, as the dataset remembers it."""
    keys = {
        (key_of(query), ""): KeyState(KeyId(number), key_of(query), "", long_watermark(last + 1))
        for number, (query, last) in enumerate(published.items())
    }
    urn = DatasetUrn("clicks")
    facts = {} if last is None else remember_batch(last, {})
    return DatasetState(DatasetId(LaneId(1)), JobName("web"), urn, len(published), keys, source_facts=facts)


EMPTY = state({})
HELD = state({OLD: 4}, QueryBatch(OLD, 4, 400))
TAKEN = state({OLD: 4, NEW: 0}, QueryBatch(NEW, 0, 500))


@pytest.mark.parametrize(
    ("batch", "of"),
    [
        (QueryBatch(OLD, 0), EMPTY),
        (QueryBatch(OLD, 7, first_batch=7), EMPTY),
        (QueryBatch(OLD, 5), HELD),
        (QueryBatch(OLD, 5, takes_over=NEW), HELD),
        (QueryBatch(OLD, 9, first_batch=9), HELD),
        (QueryBatch(NEW, 0, takes_over=OLD), HELD),
        (QueryBatch(NEW, 1, takes_over=OLD), TAKEN),
        (QueryBatch(NEW, 1), TAKEN),
        (QueryBatch(OLD, 5, takes_over=NEW), TAKEN),
    ],
)
def test_the_next_batch_is_published(batch: QueryBatch, of: DatasetState) -> None:
    assert not is_published(batch, of)


@pytest.mark.parametrize(
    ("batch", "of"),
    [
        (QueryBatch(OLD, 4, 400), HELD),
        (QueryBatch(OLD, 4), HELD),
        (QueryBatch(OLD, 4, 400), state({OLD: 4}, QueryBatch(OLD, 4))),
        (QueryBatch(NEW, 0, 500, takes_over=OLD), TAKEN),
        # When the batch of another query was planned says nothing of this one.
        (QueryBatch(OLD, 4, 400, takes_over=NEW), TAKEN),
        # A restored log has positions from what was published, and earlier facts, or none.
        (QueryBatch(OLD, 4, 400), state({OLD: 4}, QueryBatch(OLD, 2, 200))),
        (QueryBatch(OLD, 4, 400), state({OLD: 4})),
    ],
)
def test_the_last_batch_is_skipped_when_it_comes_again(batch: QueryBatch, of: DatasetState) -> None:
    assert is_published(batch, of)


@pytest.mark.parametrize(
    ("batch", "of", "field", "said", "fix"),
    [
        (QueryBatch(NEW, 0), HELD, "checkpointLocation", "published by the query", f"takes_over='{OLD}'"),
        (QueryBatch(NEW, 0), state({OLD: 4}), "checkpointLocation", "up to its batch 4", f"takes_over='{OLD}'"),
        (QueryBatch(OLD, 5), TAKEN, "checkpointLocation", "published by the query", f"takes_over='{NEW}'"),
        (QueryBatch("x", 0, takes_over=OLD), TAKEN, "checkpointLocation", f"and not {OLD}", f"takes_over='{NEW}'"),
        (QueryBatch(NEW, 3, takes_over=OLD), HELD, "checkpointLocation", "expected batch 0", "first_batch=3"),
        (QueryBatch(OLD, 6), HELD, "checkpointLocation", "expected batch 5", "first_batch=6"),
        (QueryBatch(OLD, 6, first_batch=7), HELD, "checkpointLocation", "expected batch 5", "first_batch=6"),
        (QueryBatch(OLD, 3), EMPTY, "checkpointLocation", "expected batch 0", "first_batch=3"),
        (QueryBatch(OLD, 2, first_batch=3), EMPTY, "checkpointLocation", "expected batch 3", "first_batch=2"),
        (QueryBatch(OLD, 4, 401), HELD, "checkpointLocation", "gives batch 4 anew", f"takes_over='{OLD}'"),
        (QueryBatch(OLD, 3, 300), HELD, "checkpointLocation", "gives batch 3 anew", "newest state"),
        (QueryBatch(OLD, 0), HELD, "checkpointLocation", "gives batch 0 anew", "newest state"),
        (QueryBatch(NEW, 0, takes_over=OLD), EMPTY, "takes_over", "no query has published", "Leave it out"),
    ],
)
def test_all_else_is_refused_with_the_fix(batch: QueryBatch, of: DatasetState, field: str, said: str, fix: str) -> None:
    with pytest.raises(RejectedError, match=said) as caught:
        is_published(batch, of)

    assert caught.value.field == field
    assert fix in caught.value.hint


def test_what_is_learnt_makes_the_same_batch_known() -> None:
    batch = QueryBatch(OLD, 5, 600)
    after = replace(state({OLD: 5}), source_facts=remember_batch(batch, {**HELD.source_facts, "other": 1}))

    assert after.source_facts["other"] == 1
    assert is_published(batch, after)
    with pytest.raises(RejectedError, match="anew"):
        is_published(replace(batch, planned_at_ms=601), after)
