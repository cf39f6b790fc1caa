"""Segments give back the steps at given names as they were sealed, phase by phase, whatever the names are."""

import hashlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.commit.segment import (
    Segment,
    decode_segment,
    decode_sizes,
    encode_segments,
    find_kinds,
    find_phase,
    join_segments_of_done,
    list_published,
)
from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.files.rename_steps import RenameFile
from gobblin_assets.destinations.fixed_names.named_codecs import NAMED_KINDS
from gobblin_assets.destinations.fixed_names.named_directory_steps import (
    NO_PLACE,
    ClearDirectory,
    ClearFile,
    CloseDirectory,
    EnsureDirectory,
    OpenDirectory,
    PlaceDirectory,
)
from gobblin_assets.destinations.fixed_names.named_steps import NamedStep, Phase, PlaceFile, RemoveFile, ReplaceFile
from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.model.files import DataFile, FileIdentity
from gobblin_assets.model.urn import Role

ODD_NAMES = (
    ",",
    ":",
    "m",
    "x:",
    "r,1,2",
    "é",
    "e\u0301",
    "\ud7ff",
    "\U0010ffff",
    "\u2028",
    "a\nb",
    "%2F",
    "*",
    "'",
    '"',
    " ",
    "-",
    "None",
    ".source",
)
NAMES = st.one_of(
    st.sampled_from(ODD_NAMES),
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=6),
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
NESTED = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
IDENTITIES = st.builds(
    FileIdentity,
    size_bytes=st.integers(0, 2**63 - 1),
    inode=st.one_of(st.none(), st.integers(0, 2**64 - 1)),
    mtime_ns=st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    tag=st.one_of(st.none(), NAMES),
)
FILES = st.lists(st.builds(DataFile, NESTED, IDENTITIES, st.just(0)), min_size=1, max_size=4).map(tuple)
MODES, INODES = st.integers(0, 0o7777), st.none() | st.integers(0, 2**64 - 1)
STEPS = st.one_of(
    st.builds(PlaceFile, PATHS, PATHS, NAMES, NAMES, IDENTITIES, st.booleans()),
    st.builds(ReplaceFile, PATHS, PATHS, NAMES, NAMES, IDENTITIES, IDENTITIES, st.booleans(), st.booleans()),
    st.builds(RemoveFile, PATHS, PATHS, NAMES, IDENTITIES),
    st.builds(PlaceDirectory, PATHS, PATHS, NAMES, NAMES, st.integers(0, 2**64 - 1), FILES, st.booleans()),
    st.builds(EnsureDirectory, PATHS, PATHS, NAMES),
    st.builds(OpenDirectory, PATHS, PATHS, st.just(NO_PLACE), MODES, INODES),
    st.builds(CloseDirectory, PATHS, PATHS, st.just(NO_PLACE), MODES, INODES),
)
MANY = st.lists(STEPS, min_size=1, max_size=8)


def encode(steps: list[NamedStep], steps_max: int = 10_000) -> list[Segment]:
    return encode_segments(steps, role=Role.DATA, partition="", steps_max=steps_max)


def in_phases(steps: list[NamedStep]) -> list[NamedStep]:
    """Steps of one phase keep their order."""
    return sorted(steps, key=lambda step: step.phase)


def decode(segments: list[Segment]) -> list[CommitStep]:
    return [step for segment in segments for step in decode_segment(segment.payload, segment.digest)]


@given(MANY, st.integers(1, 4))
def test_steps_come_back_as_they_were_in_the_order_of_their_phases(steps: list[NamedStep], steps_max: int) -> None:
    segments = encode(steps, steps_max)
    assert decode(segments) == in_phases(steps)
    assert all(segment.step_count <= steps_max for segment in segments)
    phases = [find_phase(segment.payload) for segment in segments]
    assert all(before <= after for before, after in pairwise(phases))
    for segment, phase in zip(segments, phases, strict=True):
        assert {step.phase for step in decode([segment])} == {phase}


@given(MANY)
def test_what_steps_publish_is_read_without_them(steps: list[NamedStep]) -> None:
    expected = [file for step in in_phases(steps) for file in step.published()]
    segments = encode(steps)
    found = [file for segment in segments for file in list_published(segment.payload, segment.digest)]
    assert found == expected
    sizes = [size for segment in segments for size in decode_sizes(segment.payload, segment.digest)]
    assert sizes == [(path, identity.size_bytes) for path, identity, _rows in expected]
    assert sum(segment.file_count for segment in segments) == len(expected)
    assert sum(segment.file_bytes for segment in segments) == sum(size for _path, size in sizes)
    assert sum(segment.row_count for segment in segments) == 0


@given(MANY)
def test_segments_of_what_is_done_keep_names_and_kinds(steps: list[NamedStep]) -> None:
    segments = encode(steps)
    joined = join_segments_of_done(segments)
    assert join_segments_of_done([joined]) == joined
    found = decode([joined])
    assert [(step.kind, step.target) for step in found if isinstance(step, NamedStep)] == [
        (step.kind, step.target) for step in in_phases(steps)
    ]
    assert [file for step in found for file in step.published()] == [
        file for step in in_phases(steps) for file in step.published()
    ]


@given(MANY)
def test_places_lead_into_the_attempt_wherever_it_stands(steps: list[NamedStep]) -> None:
    for step in decode(encode(steps)):
        assert isinstance(step, NamedStep)
        for place in (step.source_in("/now"), step.slot_in("/now"), step.returned_in("/now")):
            assert place.startswith("/now/")


def test_a_directory_that_an_earlier_release_stored_is_read() -> None:
    step = PlaceDirectory("/s", "/t/d", "4", "w", 9, (DataFile("f", FileIdentity(3, 1, 2), 0),))
    assert next(kind for kind in NAMED_KINDS if kind.name == step.kind).codec.to_columns([step], 0)[-1] == ["9"]
    assert decode(encode([step])) == [step]


def test_every_kind_has_its_phase_and_its_codec() -> None:
    identity = FileIdentity(3, 1, 2)
    steps: list[NamedStep] = [
        RemoveFile("/s", "/t/removed", "0", identity),
        ReplaceFile("/s", "/t/_SUCCESS", "1", "w", identity, identity, exchanges=True, is_metadata=True),
        PlaceFile("/s", "/t/manifest", "2", "w", identity, is_metadata=True),
        ReplaceFile("/s", "/t/replaced", "3", "w", identity, identity, exchanges=True),
        PlaceDirectory("/s", "/t/d", "4", "w", 9, (DataFile("f", identity, 0),)),
        PlaceDirectory("/s", "/t/metadata", "5", "w", 9, (DataFile("f", identity, 0),), is_metadata=True),
        PlaceFile("/s", "/t/new", "5", "w", identity),
        EnsureDirectory("/s", "/t", "6"),
        ClearDirectory("/s", "/t/other", "7"),
        ClearFile("/s", "/t/other/cleared", "8", identity),
        CloseDirectory("/s", "/t/closed", NO_PLACE, 0o555, 7),
        OpenDirectory("/s", "/t/opened", NO_PLACE, 0o555),
    ]
    segments = encode(steps)
    assert [find_phase(segment.payload) for segment in segments] == list(Phase)
    assert [step.target for step in in_phases(steps)] == [
        "/t/opened",
        "/t/other/cleared",
        "/t/other",
        "/t",
        "/t/d",
        "/t/new",
        "/t/replaced",
        "/t/_SUCCESS",
        "/t/manifest",
        "/t/metadata",
        "/t/removed",
        "/t/closed",
    ]
    kinds = {kind.name for segment in segments for kind in find_kinds(segment.payload, segment.digest)}
    assert kinds == {kind.name for kind in NAMED_KINDS} == {step.kind for step in steps}


def test_steps_at_new_names_are_of_the_first_phase() -> None:
    (segment,) = encode_segments([RenameFile("/s/w/f", "/t/f", FileIdentity(3), 1)], role=Role.DATA, partition="")
    assert find_phase(segment.payload) == Phase.DIRECTORIES


@pytest.mark.parametrize("tag", [None, "etag", "1,2", ",", ":x"])
def test_an_old_identity_keeps_what_it_has_not(tag: str | None) -> None:
    for old in (FileIdentity(0, None, None, tag), FileIdentity(0, 0, None, tag), FileIdentity(0, None, 0, tag)):
        step = ReplaceFile("/s", "/t/f", "0", "w", FileIdentity(1), old, exchanges=False)
        assert decode(encode([step])) == [step]


def test_a_removal_without_an_identity_is_corrupt() -> None:
    (segment,) = encode([RemoveFile("/s", "/t/f", "0", FileIdentity(3))])
    broken = segment.payload.replace(b"3,,,", b",3,,")
    with pytest.raises(CorruptionError, match="has no size"):
        decode_segment(broken, hashlib.sha256(broken).digest())


def test_a_directory_without_files_is_refused() -> None:
    with pytest.raises(RejectedError, match="without files"):
        PlaceDirectory("/s", "/t/d", "0", "w", 9, ())
