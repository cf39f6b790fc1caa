"""The decision whether a batch is the dataset's next one, was published before, or must be refused. Pure.

Spark numbers the batches of a checkpoint from 0. Before Spark hands a batch over, it writes down the batch's offsets.
It hands the last batch over again, with the same rows, if it did not learn that the batch was done. So a batch's number
is its position, and the id of the query, which Spark keeps in the checkpoint, names the key. Spark repeats only the
last batch. An earlier batch shows that the checkpoint is an older copy: its next batches have other rows than the
published batches of the same numbers. The moment at which Spark planned a batch says the same of the last one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.state import DatasetState

LAST_BATCH_FACT: Final = "last_batch"
"""What the dataset remembers of the batch that was published last: a mapping of the three names below."""

_QUERY: Final = "query_id"
_BATCH: Final = "batch_id"
_PLANNED: Final = "planned_at_ms"
_KEY_PREFIX: Final = "query "
_OPTION: Final = "checkpointLocation"


@dataclass(frozen=True, slots=True)
class QueryBatch:
    """One batch of the query ``query_id``.

    ``planned_at_ms``: when Spark planned it, which is the same for each repetition; None: Spark did not say.
    ``takes_over``: a person's word that the query goes on where another one ended. ``first_batch``: a person's word
    that the query's earlier batches are not wanted here.
    """

    query_id: str
    batch_id: int
    planned_at_ms: int | None = None
    takes_over: str | None = None
    first_batch: int = 0

    @property
    def key(self) -> str:
        """The name of the watermark key."""
        return key_of(self.query_id)


def key_of(query_id: str) -> str:
    return f"{_KEY_PREFIX}{query_id}"


def is_published(batch: QueryBatch, state: DatasetState) -> bool:
    """Whether the dataset has the batch already; if not, it is the next one. RejectedError names the fix."""
    owner = _find_owner(batch, state)
    if owner not in {None, batch.query_id} and batch.takes_over != owner:
        raise _refuse_query(batch, state, str(owner))
    if batch.takes_over not in {None, owner} and owner != batch.query_id:
        raise RejectedError(
            f"no query has published {state.urn} yet, found {batch.takes_over}",
            field="takes_over",
            hint="Leave it out.",
        )
    expected = _find_next(state, batch.query_id)
    if batch.batch_id == (batch.first_batch if expected is None else expected):
        return False
    if expected is not None and batch.batch_id < expected:
        _require_repeated(batch, state, expected)
        return True
    if expected is not None and batch.batch_id == batch.first_batch:
        return False
    raise _refuse_gap(batch, state, expected)


def remember_batch(batch: QueryBatch, facts: Mapping[str, object]) -> Mapping[str, object]:
    """What the dataset remembers once the batch is published."""
    last = {_QUERY: batch.query_id, _BATCH: batch.batch_id, _PLANNED: batch.planned_at_ms}
    return {**facts, LAST_BATCH_FACT: last}


def _find_owner(batch: QueryBatch, state: DatasetState) -> str | None:
    """The query whose batches the dataset has last; None: it has none."""
    found = _recall_batch(state).get(_QUERY)
    if isinstance(found, str):
        return found
    # Facts are missing where a restored log got its positions back from what was published.
    queries = {key.removeprefix(_KEY_PREFIX) for key, _partition in state.keys if key.startswith(_KEY_PREFIX)}
    known = sorted(each for each in queries if _find_next(state, each) is not None)
    return batch.query_id if batch.query_id in known else next(iter(known), None)


def _find_next(state: DatasetState, query_id: str) -> int | None:
    """The number of the query's next batch; None: none of its batches is published."""
    found = state.find_watermark(key_of(query_id), "")
    return found.value if found is not None and isinstance(found.value, int) else None


def _recall_batch(state: DatasetState) -> Mapping[str, object]:
    """The last batch as it was remembered. A log that was restored may remember an earlier one, or none."""
    found = state.source_facts.get(LAST_BATCH_FACT)
    return found if isinstance(found, Mapping) else {}


def _require_repeated(batch: QueryBatch, state: DatasetState, expected: int) -> None:
    """RejectedError if the published batch of this number is another one, by all that is known."""
    last = _recall_batch(state)
    is_last = (last.get(_QUERY), last.get(_BATCH)) == (batch.query_id, batch.batch_id)
    known = last.get(_PLANNED) if is_last else None
    is_same = known is None or batch.planned_at_ms is None or known == batch.planned_at_ms
    if batch.batch_id == expected - 1 and is_same:
        return
    raise RejectedError(
        f"{state.urn}: the checkpoint of the query {batch.query_id} is older than what is published: it gives batch "
        f"{batch.batch_id} anew, and the batches up to {expected - 1} are published",
        field=_OPTION,
        hint="Nothing of it was published, since nobody knows which of its rows are new. Go on with the newest state "
        f"of that directory. {_explain_new_checkpoint(batch.query_id, expected)}",
    )


def _refuse_query(batch: QueryBatch, state: DatasetState, owner: str) -> RejectedError:
    expected = _find_next(state, owner) or 0
    found = f", and not {batch.takes_over}" if batch.takes_over is not None else ""
    return RejectedError(
        f"{state.urn} is published by the query {owner}, up to its batch {expected - 1}{found}; batch {batch.batch_id} "
        f"comes from the query {batch.query_id}, which has another checkpoint",
        field=_OPTION,
        hint=f"Nothing of it was published. Go on with the checkpoint directory of {owner}. "
        f"{_explain_new_checkpoint(owner, expected)}",
    )


def _refuse_gap(batch: QueryBatch, state: DatasetState, expected: int | None) -> RejectedError:
    first = expected if expected is not None else batch.first_batch
    return RejectedError(
        f"{state.urn}: expected batch {first} of the query {batch.query_id}, found {batch.batch_id}: the batches "
        "before it were not published here",
        field=_OPTION,
        hint=f"Nothing of it was published. Go on with the directory as it was when batch {first} was to come, or with "
        "a new one. If the rows of the batches before are not wanted, or are published already, give "
        f"foreach_batch(..., first_batch={batch.batch_id}).",
    )


def _explain_new_checkpoint(owner: str, expected: int) -> str:
    return (
        f"To begin with a new directory on purpose, let the new query read from where batch {expected - 1} ended (the "
        f"file offsets/{expected - 1} of the old directory), and give foreach_batch(..., takes_over={owner!r}): what "
        "it reads again is doubled, what it leaves out is lost."
    )
