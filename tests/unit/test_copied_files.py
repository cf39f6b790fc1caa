"""What a copy staged becomes the steps that publish it: from columns, which no step value ever fills."""

import uuid
from collections.abc import Sequence
from typing import Any, Final

import pytest

from gobblin_assets.commit.segment import Segment, decode_segment, encode_segments
from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.fixed_names.given_names import NamedTree
from gobblin_assets.destinations.fixed_names.named_directory_steps import EnsureDirectory, PlaceDirectory
from gobblin_assets.destinations.fixed_names.named_steps import Phase, PlaceFile, RemoveFile, ReplaceFile
from gobblin_assets.errors import RetryableError
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.jobs.copy import file_staging
from gobblin_assets.jobs.copy.copy_plan import CopyPlan
from gobblin_assets.jobs.copy.copyable import Attributes, CopyItem, PlannedFile
from gobblin_assets.jobs.copy.file_staging import CopiedFiles
from gobblin_assets.jobs.copy.transfer.preserve import NOTHING_PRESERVED
from gobblin_assets.jobs.copy.transfer.transfer_port import FileResult
from gobblin_assets.model.files import DataFile, FileIdentity
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.destination import DestinationRequest, Target
from gobblin_assets.run.job_kind import Output

URN: Final = DatasetUrn("photos")
ATTEMPT: Final = "/out/.gobblin/mirror/.staging/1"
UNREACHED: Final[Any] = None


def file(path: str) -> PlannedFile:
    return PlannedFile.of(path, TreeEntry(path, EntryKind.FILE, FileIdentity(3, 1, 1)))


def item(number: int, path: str) -> CopyItem:
    return CopyItem(number, path, (file(path),))


def directory(number: int, path: str, *names: str) -> CopyItem:
    return CopyItem(number, path, tuple(file(f"{path}/{name}") for name in names), is_directory=True)


def identity(number: int, part: int = 0) -> FileIdentity:
    """What the copy of an item has."""
    return FileIdentity(10 * number + part, 2**64 - 1 - number * 10 - part, -number)


def report(items: Sequence[CopyItem], copied: CopiedFiles, *, checksum: int | None = None) -> None:
    for each in items:
        writer = f"w00{each.number % 3}"
        top = f"{writer}/{each.number}"
        if not each.is_directory:
            copied.add(FileResult(each.number, each.path, top, identity=identity(each.number), checksum=checksum))
            continue
        for part, found in enumerate(each.files, start=1):
            staged = f"{top}{found.path.removeprefix(each.path)}"
            copied.add(FileResult(each.number, found.path, staged, identity=identity(each.number, part), checksum=part))
        copied.add(FileResult(each.number, each.path, top, is_directory=True, identity=FileIdentity(0, each.number)))


def steps_of(copied: CopiedFiles, **options: Any) -> list[Segment]:
    tree = NamedTree(
        DestinationRequest(JobName("mirror"), "/out", PosixFileSystem(), "/out", UNREACHED, UNREACHED, uuid.uuid4),
        keep_s=1.0,
        places={URN: "photos"},
    )
    output = Output(Role.DATA, ATTEMPT, "", (), copied)
    steps = tree.steps_for([output], Target(URN, "", SequenceId(uuid.uuid4()), 0))
    return encode_segments(steps, role=Role.DATA, partition="", **options)


def decode(segments: Sequence[Segment]) -> list[CommitStep]:
    return [step for each in segments for step in decode_segment(each.payload, each.digest)]


OLD: Final = FileIdentity(7, 8, 9, "v")
PLAN: Final = CopyPlan(
    source_root="/in",
    preserve=NOTHING_PRESERVED,
    items=(
        directory(4, "whole", "x", "deep/y"),
        item(2, "a/changed"),
        item(3, "a/new"),
        item(5, "top"),
        item(6, "a/_SUCCESS"),
        item(7, "_SUCCESS"),
    ),
    replaced={2: OLD, 7: FileIdentity(1)},
    metadata=frozenset({6, 7}),
    removals=((8, "a/gone", OLD), (9, "gone", FileIdentity(4, None, 5))),
    directories=((1, "", Attributes()), (10, "..", Attributes())),
)
STEPS: Final[Sequence[CommitStep]] = [
    EnsureDirectory(ATTEMPT, "/out/photos", "1"),
    EnsureDirectory(ATTEMPT, "/out", "10"),
    PlaceDirectory(
        *(ATTEMPT, "/out/photos/whole", "4", "w001", 4),
        files=(DataFile("deep/y", identity(4, 2), 0), DataFile("x", identity(4, 1), 0)),
    ),
    PlaceFile(ATTEMPT, "/out/photos/a/new", "3", "w000", identity(3)),
    PlaceFile(ATTEMPT, "/out/photos/top", "5", "w002", identity(5)),
    ReplaceFile(ATTEMPT, "/out/photos/a/changed", "2", "w002", identity(2), OLD, exchanges=False),
    PlaceFile(ATTEMPT, "/out/photos/a/_SUCCESS", "6", "w000", identity(6), is_metadata=True),
    ReplaceFile(
        *(ATTEMPT, "/out/photos/_SUCCESS", "7", "w001", identity(7), FileIdentity(1)),
        exchanges=False,
        is_metadata=True,
    ),
    RemoveFile(ATTEMPT, "/out/photos/a/gone", "8", OLD),
    RemoveFile(ATTEMPT, "/out/photos/gone", "9", FileIdentity(4, None, 5)),
]


def test_columns_make_the_segments_that_steps_would_make_byte_for_byte() -> None:
    copied = CopiedFiles(PLAN)
    report(PLAN.items, copied)
    copied.require_all()

    segments = steps_of(copied)

    assert decode(segments) == list(STEPS)
    assert segments == encode_segments(STEPS, role=Role.DATA, partition="")
    assert steps_of(copied) == segments, "outputs can be asked for again"


def test_a_directory_of_metadata_comes_after_replacements() -> None:
    items = (directory(1, "metadata", "v1"), item(2, "changed"))
    copied = CopiedFiles(CopyPlan("/in", NOTHING_PRESERVED, items, {2: OLD}, metadata=frozenset({1})))
    report(items, copied)
    assert [(step.kind, step.phase) for step in decode(steps_of(copied))] == [
        ("replace_file", Phase.REPLACEMENTS),
        ("place_directory", Phase.METADATA),
    ]


@pytest.mark.parametrize("steps_max", [1, 2, 3])
def test_segments_stay_in_their_bounds_wherever_columns_end(steps_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_staging, "FILES_PER_OUTPUT_MAX", 2)
    copied = CopiedFiles(PLAN)
    report(PLAN.items, copied)

    segments = steps_of(copied, steps_max=steps_max)

    assert decode(segments) == list(STEPS)
    assert all(0 < each.step_count <= steps_max for each in segments)
    assert sum(each.step_count for each in segments) == len(STEPS)
    published = [found for step in STEPS for _path, found, _rows in step.published()]
    assert sum(each.file_count for each in segments) == len(published) == 7
    assert sum(each.file_bytes for each in segments) == sum(found.size_bytes for found in published)


def test_many_files_fill_segments_in_the_order_of_the_plan() -> None:
    items = tuple(item(number, f"{number // 7}/{number}") for number in range(1, 2_501))
    plan = CopyPlan("/in", NOTHING_PRESERVED, items, {number: OLD for number in range(1, 2_501) if number % 5})
    copied = CopiedFiles(plan)
    report(items, copied)

    segments = steps_of(copied, steps_max=1_000)

    assert [each.step_count for each in segments] == [500, 1_000, 1_000]
    steps = decode(segments)
    assert [int(step.number) for step in steps if isinstance(step, PlaceFile)] == [*range(5, 2_501, 5)]
    replaced = [step for step in steps if isinstance(step, ReplaceFile)]
    assert [int(step.number) for step in replaced] == [number for number in range(1, 2_501) if number % 5]
    assert all(step.identity == identity(int(step.number)) and step.old == OLD for step in replaced)


@pytest.mark.parametrize("missing", [2, 4])
def test_a_file_that_nobody_reported_fails_the_copy(missing: int) -> None:
    copied = CopiedFiles(PLAN)
    report([each for each in PLAN.items if each.number != missing], copied)
    with pytest.raises(RetryableError, match="files were planned, and 0 were reported"):
        copied.require_all()


def test_a_directory_is_reported_with_all_its_files() -> None:
    (whole,) = [each for each in PLAN.items if each.is_directory]
    copied = CopiedFiles(CopyPlan("/in", NOTHING_PRESERVED, (whole,)))
    copied.add(FileResult(4, whole.path, "w001/4", is_directory=True, identity=FileIdentity(0, 4)))
    copied.add(FileResult(4, "whole/x", "w001/4/x", identity=identity(4, 1)))
    with pytest.raises(RetryableError, match="2 files were planned, and 1 were reported"):
        copied.require_all()


@pytest.mark.parametrize("told", [None, FileIdentity(1), FileIdentity(1, 2)])
def test_what_is_reported_without_its_identity_fails_the_copy(told: FileIdentity | None) -> None:
    with pytest.raises(RetryableError, match="without an identity"):
        CopiedFiles(PLAN).add(FileResult(3, "a/new", "w000/3", identity=told))


def test_checksums_and_inodes_are_those_that_were_reported() -> None:
    copied = CopiedFiles(PLAN)
    report(PLAN.items, copied, checksum=2**32 - 1)
    assert sorted(copied.list_checksums()) == sorted(
        [
            *(("a/changed", "w002/2", 2**32 - 1), ("a/new", "w000/3", 2**32 - 1), ("top", "w002/5", 2**32 - 1)),
            *(("a/_SUCCESS", "w000/6", 2**32 - 1), ("_SUCCESS", "w001/7", 2**32 - 1)),
            *(("whole/x", "w001/4/x", 1), ("whole/deep/y", "w001/4/deep/y", 2)),
        ]
    )
    numbers = [(2, 0), (3, 0), (5, 0), (6, 0), (7, 0), (4, 1), (4, 2)]
    assert sorted(copied.list_inodes()) == sorted(identity(*each).inode or 0 for each in numbers)
