"""What becomes of a file when its parts are reported, fail, or are lost with their writer."""

import pytest

from gobblin_assets.errors import CorruptionError, ErrorFamily, GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.jobs.copy.copyable import CopyItem, PlannedFile
from gobblin_assets.jobs.copy.transfer.bins import Bin, SplitPart
from gobblin_assets.jobs.copy.transfer.file_copy import CopyOptions
from gobblin_assets.jobs.copy.transfer.results import SplitFiles, list_lost, list_results
from gobblin_assets.jobs.copy.transfer.transfer_port import CopyFailure, FileResult
from gobblin_assets.jobs.copy.transfer.writing import ResultRow
from gobblin_assets.jobs.copy.worker import failure_of_files
from gobblin_assets.model.files import FileIdentity

OPTIONS = CopyOptions(checksum=True, access_lists=False, extended=False)


def item(number: int, size_bytes: int = 1) -> CopyItem:
    entry = TreeEntry(f"f{number}", EntryKind.FILE, FileIdentity(size_bytes, number, 1))
    return CopyItem(number, f"f{number}", (PlannedFile.of(f"f{number}", entry),))


LARGE = item(9, 8)
PARTS = (SplitPart(LARGE, 0, 0, 4), SplitPart(LARGE, 1, 4, 4))
FIRST, SECOND = Bin(0, (item(1), item(2)), 10, PARTS[:1]), Bin(1, (), 4, PARTS[1:])
FILE_ROW: ResultRow = (0, 0, (1, 77, 1, 5), None)
PART_ROW: ResultRow = (0, 0, (4, 88, 1, 5), None)


def failed(results: tuple[FileResult, ...]) -> dict[str, str]:
    return {each.staged_path: each.failure.message for each in results if each.failure is not None}


def test_a_lost_writer_fails_what_it_has_not_reported_and_the_file_of_its_part() -> None:
    splits = SplitFiles("/source", "/attempt", OPTIONS, (FIRST, SECOND))
    assert failed(list_results(FIRST, [FILE_ROW], splits)) == {}
    assert failed(list_results(FIRST, list_lost(FIRST, 1, "it died"), splits)) == {"w000/2": "it died"}
    last = list_results(SECOND, [PART_ROW], splits)
    assert failed(last) == {"splits/9": "it died"}
    assert last[0].failure is not None
    assert last[0].failure.family is ErrorFamily.RETRYABLE


def test_a_part_of_another_length_or_file_or_without_a_checksum_fails_the_file() -> None:
    for wrong in ((3, 88, 1, 5), (4, 99, 1, 5), (4, 88, 1, None)):
        splits = SplitFiles("/source", "/attempt", OPTIONS, (FIRST, SECOND))
        row: ResultRow = (2, 0, wrong, None)
        assert list_results(FIRST, [row], splits) == ()
        assert "/attempt/splits/9" in failed(list_results(SECOND, [PART_ROW], splits))["splits/9"]


@pytest.mark.parametrize(
    ("families", "expected"),
    [
        ([ErrorFamily.RETRYABLE], RetryableError),
        ([ErrorFamily.OUTCOME_UNKNOWN], RetryableError),
        ([ErrorFamily.OUTCOME_UNKNOWN, ErrorFamily.RETRYABLE], RetryableError),
        ([ErrorFamily.RETRYABLE, ErrorFamily.REJECTED], RejectedError),
        ([ErrorFamily.REJECTED, ErrorFamily.CORRUPTION, ErrorFamily.RETRYABLE], CorruptionError),
    ],
)
def test_files_that_failed_together_fail_as_the_gravest_of_them(
    families: list[ErrorFamily], expected: type[GobblinError]
) -> None:
    """What is staged was not published: whether a write there happened does not matter to the next try."""
    results = [
        FileResult(number, f"f{number}", f"w000/{number}", failure=CopyFailure(family, "it broke"))
        for number, family in enumerate(families)
    ]
    found = failure_of_files(results)
    assert type(found) is expected
    assert "f0: it broke" in str(found)
