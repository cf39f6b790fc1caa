"""Which lost history a log can adopt: only one that continues from its version without a gap or a doubt."""

import uuid

import pytest

from gobblin_assets.commit.attempts import published_directories
from gobblin_assets.commit.examination import Remembered, decide_chain, is_replaced
from gobblin_assets.commit.sequence import KnownSequence, SealedSequence, SealOrder
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import DatasetId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName


def remembered(
    version: int | None, known: KnownSequence | None = None, *, partition: str = "", replaces: bool = False
) -> Remembered:
    sequence_id = SequenceId(uuid.uuid4())
    sealed = None
    if version is not None:
        order = SealOrder(sequence_id, DatasetId(0), partition, 1, version - 1, (), b"", 0, 0, (), complete=True)
        sealed = SealedSequence(JobName("j"), DatasetUrn("u"), Mode.APPEND, replaces, order, ())
    return Remembered(sequence_id, known, version, sealed=sealed)


def open_as(state: SequenceState) -> KnownSequence:
    return KnownSequence(state, is_sealed=state is not SequenceState.BUILDING)


def test_an_unbroken_history_is_taken_back_in_its_order() -> None:
    lost = [remembered(4), remembered(5), remembered(6)]
    assert decide_chain(3, lost) == (tuple(lost), None)


@pytest.mark.parametrize("state", [SequenceState.PREPARED, SequenceState.BLOCKED, SequenceState.BUILDING])
def test_it_may_begin_with_what_the_log_has_unfinished(state: SequenceState) -> None:
    lost = [remembered(4, open_as(state)), remembered(5)]
    assert decide_chain(3, lost) == (tuple(lost), None)


def test_without_a_lost_sequence_nothing_is_taken_back_and_an_open_one_goes_on_by_itself() -> None:
    assert decide_chain(3, []) == ((), None)
    assert decide_chain(3, [remembered(4, open_as(SequenceState.PREPARED))]) == ((), None)


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ([remembered(5)], "no marker of version 4"),
        ([remembered(4), remembered(6)], "no marker of version 5"),
        ([remembered(4), remembered(4)], "2 sequences claim version 4"),
        ([remembered(4, open_as(SequenceState.PREPARED)), remembered(4)], "2 sequences claim version 4"),
        ([remembered(3), remembered(4)], "the log has gone on by itself"),
        ([remembered(4), remembered(None)], "no marker: an older release"),
        ([remembered(4, KnownSequence(SequenceState.ABORTED, is_sealed=False))], "given up in this log"),
        ([remembered(4, open_as(SequenceState.ABANDONING)), remembered(5)], "being given up"),
    ],
    ids=["begins late", "gap", "two", "open and lost", "log went on", "no marker", "aborted", "abandoning"],
)
def test_any_doubt_is_said_and_nothing_is_taken_back(lost: list[Remembered], said: str) -> None:
    chain, refusal = decide_chain(3, lost)
    assert chain == ()
    assert said in (refusal or "")


def test_only_a_later_refresh_of_the_same_partition_replaces() -> None:
    first = remembered(4, partition="a")
    assert is_replaced(first, [remembered(5), remembered(6, partition="a", replaces=True)])
    assert not is_replaced(first, [remembered(5, partition="b", replaces=True), remembered(6, partition="a")])
    assert not is_replaced(first, [])


def test_a_published_directory_is_known_by_its_name_alone() -> None:
    sequence_id = SequenceId(uuid.uuid4())
    mine = f"/lake/job/data/u/k={sequence_id.hex}-0/{sequence_id.hex}-12"
    strangers = [f"/lake/job/data/u/{sequence_id.hex}/f", f"/lake/job/data/u/{sequence_id.hex}-0/deeper/f", "/f"]
    assert published_directories([f"{mine}/part-0", f"{mine}/part-1", *strangers]) == {sequence_id: {mine}}
