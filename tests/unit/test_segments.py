"""Segments give back exactly the steps that were sealed, or say that they are not the ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.commit import steps as commit_steps
from gobblin_assets.commit.segment import (
    STEPS_PER_SEGMENT_MAX,
    combine_digests,
    decode_segment,
    decode_sizes,
    encode_empty,
    encode_segments,
)
from gobblin_assets.commit.steps import CommitStep, RenameDirectory, RenameFile
from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.model.files import DataFile, FileIdentity
from gobblin_assets.model.urn import Role
from tests.support.custom_steps import KIND, Register, read_register

IDENTITIES = st.builds(
    FileIdentity,
    size_bytes=st.integers(0, 2**63 - 1),
    inode=st.one_of(st.none(), st.integers(0, 2**64 - 1)),
    mtime_ns=st.one_of(st.none(), st.integers(0, 2**63 - 1)),
    tag=st.one_of(st.none(), st.text(max_size=4)),
)
NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=6)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
NESTED = st.lists(NAMES, min_size=1, max_size=2).map("/".join)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_steps, "_READERS", dict(commit_steps._READERS))
    commit_steps.register(KIND, read_register)


STEPS = st.one_of(
    st.builds(RenameFile, PATHS, PATHS, IDENTITIES, st.integers(0, 10**12)),
    st.builds(
        RenameDirectory,
        PATHS,
        PATHS,
        st.lists(st.builds(DataFile, NESTED, IDENTITIES, st.integers(0, 10**12)), min_size=1, max_size=4).map(tuple),
    ),
    st.builds(Register, PATHS, NAMES),
)


def round_trip(steps: list[CommitStep]) -> list[CommitStep]:
    segments = encode_segments(steps, role=Role.DATA, partition="2013-01-01")
    return [step for segment in segments for step in decode_segment(segment.payload, segment.digest)]


@given(st.lists(STEPS, max_size=6))
def test_steps_come_back_as_they_were_in_their_order(steps: list[CommitStep]) -> None:
    commit_steps._READERS.setdefault(KIND, read_register)
    assert round_trip(steps) == steps


def test_many_steps_are_cut_into_bounded_segments_that_count_what_they_hold() -> None:
    steps: list[CommitStep] = [
        RenameFile(f"/s/{n}", f"/t/{n % 7}/{n}", FileIdentity(n, n, n), n) for n in range(2 * STEPS_PER_SEGMENT_MAX + 5)
    ]
    segments = encode_segments(steps, role=Role.QUARANTINE, partition="")
    assert [segment.step_count for segment in segments] == [STEPS_PER_SEGMENT_MAX, STEPS_PER_SEGMENT_MAX, 5]
    assert sum(segment.file_count for segment in segments) == len(steps)
    assert sum(segment.row_count for segment in segments) == sum(range(len(steps)))
    assert sum(segment.file_bytes for segment in segments) == sum(range(len(steps)))
    assert round_trip(steps) == steps


def test_a_segment_without_steps_is_read_as_one() -> None:
    segment = encode_empty(role=Role.DATA, partition="", file_schema={"type": "struct", "fields": []})
    assert (segment.step_count, segment.file_count, segment.row_count, segment.file_bytes) == (0, 0, 0, 0)
    assert decode_segment(segment.payload, segment.digest) == []
    assert list(decode_sizes(segment.payload, segment.digest)) == []


def test_a_payload_that_was_not_sealed_is_corruption() -> None:
    (segment,) = encode_segments([Register("/c", "a")], role=Role.DATA, partition="")
    (other,) = encode_segments([Register("/c", "b")], role=Role.DATA, partition="")
    with pytest.raises(CorruptionError, match="does not match its digest"):
        decode_segment(other.payload, segment.digest)


def test_a_kind_that_nobody_registered_is_corruption(monkeypatch: pytest.MonkeyPatch) -> None:
    (segment,) = encode_segments([Register("/c", "a")], role=Role.DATA, partition="")
    monkeypatch.delitem(commit_steps._READERS, "tests.register")
    with pytest.raises(CorruptionError, match=r"unknown kind 'tests\.register'"):
        decode_segment(segment.payload, segment.digest)


def test_a_kind_belongs_to_the_first_who_registers_it() -> None:
    commit_steps.register(KIND, read_register)
    with pytest.raises(RejectedError, match="already registered"):
        commit_steps.register("rename_file", read_register)


@given(st.lists(st.binary(min_size=32, max_size=32), max_size=5), st.randoms())
def test_the_sealed_digest_is_over_the_segments_whatever_their_order(digests: list[bytes], random: object) -> None:
    shuffled = list(digests)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    assert combine_digests(shuffled) == combine_digests(digests)
    assert combine_digests([*digests, b"x" * 32]) != combine_digests(digests)
