"""Segments give back exactly the steps that were sealed, or report that they are not the sealed ones."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.commit import step_kinds
from gobblin_assets.commit.segment import (
    STEPS_PER_SEGMENT_MAX,
    Segment,
    combine_digests,
    decode_segment,
    decode_sizes,
    encode_empty,
    encode_segments,
    find_kinds,
    join_segments_of_done,
    list_published,
)
from gobblin_assets.commit.step_kinds import JsonCodec, StepKindMissingError
from gobblin_assets.commit.steps import CommitStep, StepKind
from gobblin_assets.destinations.files.rename_steps import RenameDirectory, RenameFile
from gobblin_assets.errors import CorruptionError
from gobblin_assets.model.files import DataFile, FileIdentity
from gobblin_assets.model.urn import Role
from tests.support.custom_steps import ENTER, REGISTER, Enter, Register, registered

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


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with registered(REGISTER, ENTER):
        yield


STEPS = st.one_of(
    st.builds(RenameFile, PATHS, PATHS, IDENTITIES, st.integers(0, 10**12)),
    st.builds(
        RenameDirectory,
        PATHS,
        PATHS,
        st.lists(st.builds(DataFile, NESTED, IDENTITIES, st.integers(0, 10**12)), min_size=1, max_size=4).map(tuple),
    ),
    st.builds(Register, PATHS, NAMES),
    st.builds(Enter, NAMES, PATHS, IDENTITIES, st.integers(0, 10**12)),
)


@contextmanager
def forgotten() -> Iterator[None]:
    """In the block, this process knows only our own kinds."""
    with registered():
        for kind in (REGISTER, ENTER):
            del step_kinds._kinds[kind.name]
        yield


def round_trip(steps: list[CommitStep]) -> list[CommitStep]:
    segments = encode_segments(steps, role=Role.DATA, partition="2013-01-01")
    return [step for segment in segments for step in decode_segment(segment.payload, segment.digest)]


def encode(*steps: CommitStep) -> Segment:
    (segment,) = encode_segments(steps, role=Role.DATA, partition="")
    return segment


def published(segment: Segment) -> list[tuple[str, FileIdentity, int]]:
    return list(list_published(segment.payload, segment.digest))


@given(st.lists(STEPS, max_size=6))
def test_steps_come_back_as_they_were_in_their_order(steps: list[CommitStep]) -> None:
    assert round_trip(steps) == steps


@given(st.lists(STEPS, min_size=1, max_size=6))
def test_what_steps_publish_is_told_without_their_kinds(steps: list[CommitStep]) -> None:
    expected = [file for step in steps for file in step.published()]
    segment = encode(*steps)
    with forgotten():
        assert published(segment) == expected
        sizes = [(path, identity.size_bytes) for path, identity, _rows in expected]
        assert list(decode_sizes(segment.payload, segment.digest)) == sizes
    assert segment.file_count == len(expected)


@given(st.lists(st.lists(STEPS, min_size=1, max_size=4), min_size=1, max_size=4))
def test_segments_of_what_is_done_are_joined_without_their_kinds(parts: list[list[CommitStep]]) -> None:
    segments = [encode(*steps) for steps in parts]
    with forgotten():
        joined = join_segments_of_done(segments)
        assert join_segments_of_done([joined]) == joined
    assert published(joined) == [file for segment in segments for file in published(segment)]
    assert [step.kind for step in decode_segment(joined.payload, joined.digest)] == [
        step.kind for steps in parts for step in steps
    ]
    assert joined.step_count == sum(map(len, parts))
    assert joined.row_count == sum(segment.row_count for segment in segments)


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


def test_a_kind_that_is_not_installed_is_named_with_who_wrote_it() -> None:
    segment = encode(Register("/c", "a"))
    for read in (decode_segment, find_kinds):
        with forgotten(), pytest.raises(StepKindMissingError, match=r"the kind 'tests\.register'") as caught:
            read(segment.payload, segment.digest)
        assert "Import the module 'tests.support.custom_steps'" in str(caught.value)
    assert find_kinds(segment.payload, segment.digest) == [REGISTER]


def test_a_step_that_its_package_can_t_read_is_corruption() -> None:
    segment = encode(Register("/c", "a"))
    other = StepKind("tests.register", JsonCodec(REGISTER.codec.write, lambda data: data["missing"]))  # type: ignore[attr-defined]  # a JsonCodec
    with (
        forgotten(),
        registered(other),
        pytest.raises(CorruptionError, match=r"'tests\.register' can't be read: KeyError"),
    ):
        decode_segment(segment.payload, segment.digest)


def test_what_earlier_releases_wrote_of_a_kind_is_read() -> None:
    """They wrote neither a row for its files nor the package that provided it."""
    step = Enter("c", "/t/a", FileIdentity(5, 6, 7), 8)
    file = RenameFile("/s/b", "/t/b", FileIdentity(1), 2)
    segment = encode(step, file)
    with pa.ipc.open_stream(segment.payload) as stream:
        table = stream.read_all().replace_schema_metadata(None)
    table = table.filter(pc.or_(pc.is_valid(table["payload"]), pc.equal(table["kind"].cast("string"), "rename_file")))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    payload = sink.getvalue().to_pybytes()
    before = replace(segment, payload=payload, digest=hashlib.sha256(payload).digest())
    assert table.num_rows == 2
    assert decode_segment(before.payload, before.digest) == [step, file]
    assert published(before) == published(segment)
    assert published(join_segments_of_done([before])) == published(segment)
    with forgotten(), pytest.raises(StepKindMissingError, match="Install the package that has this kind"):
        published(before)


def test_segments_of_our_own_kinds_are_the_same_bytes_as_ever() -> None:
    """The log keeps digests of segments."""
    files = tuple(DataFile(f"part-{n}", FileIdentity(n, n, n), n) for n in range(3))
    steps = [RenameDirectory("/lake/.staging/a", "/lake/t/1", files), RenameFile("/s/b", "/t/b", FileIdentity(1), 2)]
    segment = encode(*steps)
    with pa.ipc.open_stream(segment.payload) as stream:
        assert not stream.schema.metadata
        rows = stream.read_all().to_pylist()
    assert [row["step"] for row in rows] == [0, 0, 0, 1]
    assert rows[1] == {
        "step": 0, "kind": "rename_directory", "source_directory": "/lake/.staging/a", "source_name": "part-1",
        "target_directory": "/lake/t/1", "target_name": "part-1", "size_bytes": 1, "inode": 1, "mtime_ns": 1,
        "tag": None, "row_count": 1, "payload": None,
    }  # fmt: skip


@given(st.lists(st.binary(min_size=32, max_size=32), max_size=5), st.randoms())
def test_the_sealed_digest_is_over_the_segments_whatever_their_order(digests: list[bytes], random: object) -> None:
    shuffled = list(digests)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    assert combine_digests(shuffled) == combine_digests(digests)
    assert combine_digests([*digests, b"x" * 32]) != combine_digests(digests)
