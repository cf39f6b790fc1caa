"""Writers side by side: they are cancelled, killed, orphaned, and their directory is taken from them."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import google_crc32c
import pytest

from gobblin_assets.destinations.fixed_names.named_outputs import ClosedDirectory
from gobblin_assets.errors import ErrorFamily, RetryableError
from gobblin_assets.fs.posix_named import PosixNamedFiles
from gobblin_assets.jobs.copy.closed_directories import list_closed, open_closed
from gobblin_assets.jobs.copy.copy_plan import CopyPlan
from gobblin_assets.jobs.copy.copyable import Attributes, CopyItem
from gobblin_assets.jobs.copy.file_staging import find_finished
from gobblin_assets.jobs.copy.transfer.journal import FinishedFile, take_file
from gobblin_assets.jobs.copy.transfer.local import COLD_FILES_MIN, LocalTransfer, needs_processes, plan_work
from gobblin_assets.jobs.copy.transfer.moving import CHUNK_BYTES
from gobblin_assets.jobs.copy.transfer.preserve import parse_preserve
from gobblin_assets.jobs.copy.transfer.transfer_port import FileResult, TransferOrder, TransferProgress
from gobblin_assets.jobs.copy.transfer.writing import copy_bin
from tests.support.copying import (
    TAG,
    copy_all,
    copying_processes,
    directory_item,
    divide,
    file_items,
    fill,
    is_running,
    order_of,
    staged,
)

pytestmark = pytest.mark.turns(of=8)

FILES: Final = COLD_FILES_MIN
"""So many that their results do not fit into the pipes: writers still work when the first results are taken."""

BINS: Final = 16
WAIT_S_MAX: Final = 150.0
USER: Final = 1234


@cache
def items_of(root: Path) -> list[CopyItem]:
    """Planned once: thousands of files are looked at."""
    return file_items(root)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("many")
    for number in range(FILES):
        fill(root / f"d{number % 8}" / f"f{number:05}", b"%d" % number)
    return root


def order_many(root: Path, attempt: Path, *, workers: int, count: int = BINS) -> TransferOrder:
    """By two or more workers it is copied by processes, by one in a thread."""
    order = order_of(root, attempt, divide(items_of(root), count), workers=workers)
    assert needs_processes(order.bins, workers, COLD_FILES_MIN) == (workers > 1)
    return order


@pytest.fixture
def transfer() -> Iterator[LocalTransfer]:
    with LocalTransfer() as found:
        yield found
    assert copying_processes(os.getpid()) == set()


def wait_until_ended(pids: set[int]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline, "a copying process lives on"
        threading.Event().wait(0.01)


@pytest.mark.rotating(of=3)
@pytest.mark.core
@pytest.mark.parametrize("workers", [1, 3])
def test_each_file_has_one_result_and_progress_adds_up(many: Path, tmp_path: Path, workers: int) -> None:
    heard: list[TransferProgress] = []
    order = order_of(
        many, tmp_path / "attempt", divide(items_of(many), BINS), workers=workers, on_progress=heard.append
    )
    results = copy_all(order)
    assert len(results) == FILES
    assert all(result.failure is None for result in results.values())
    for path, result in results.items():
        assert staged(order, result).read_bytes() == (many / path).read_bytes()
    size_bytes = sum((many / path).stat().st_size for path in results)
    assert heard[-1] == TransferProgress(FILES, 0, size_bytes)
    assert [each.files for each in heard] == sorted(each.files for each in heard)
    assert copying_processes(os.getpid()) == set()


def test_directories_of_many_files_are_copied_by_processes(many: Path, tmp_path: Path) -> None:
    items = [directory_item(number, many, f"d{number}") for number in range(8)]
    order = order_of(many, tmp_path / "attempt", divide(items, 4), workers=2)
    assert needs_processes(order.bins, 2, COLD_FILES_MIN)
    results = copy_all(order)
    assert len(results) == FILES + 8
    assert all(result.failure is None for result in results.values())


def test_an_order_without_items_has_no_results(tmp_path: Path) -> None:
    assert copy_all(order_of(tmp_path, tmp_path / "attempt", ())) == {}


def test_processes_stay_for_the_next_order(many: Path, tmp_path: Path, transfer: LocalTransfer) -> None:
    transfer.prepare(2)
    ready = copying_processes(os.getpid())
    assert len(ready) == 2
    for name in ("one", "two"):
        order = order_many(many, tmp_path / name, workers=2)
        results = [result for batch in transfer.copy(order) for result in batch]
        assert [result for result in results if result.failure is not None] == []
        assert len(results) == FILES
        assert copying_processes(os.getpid()) == ready


def test_a_process_that_died_idle_is_replaced(many: Path, tmp_path: Path, transfer: LocalTransfer) -> None:
    transfer.prepare(2)
    gone = min(copying_processes(os.getpid()))
    os.kill(gone, signal.SIGKILL)
    wait_until_ended({gone})
    order = order_many(many, tmp_path / "attempt", workers=2)
    assert sum(result.failure is None for batch in transfer.copy(order) for result in batch) == FILES


# --- the end of the work


@pytest.mark.parametrize("workers", [1, 2])
def test_a_cancelled_copy_ends_with_an_error_and_nobody_works_on(
    many: Path, tmp_path: Path, transfer: LocalTransfer, workers: int
) -> None:
    order = order_many(many, tmp_path / "attempt", workers=workers)
    taken: list[FileResult] = []

    def take() -> None:
        for batch in transfer.copy(order):
            taken.extend(batch)
            transfer.cancel(TAG)

    with pytest.raises(RetryableError, match="cancelled"):
        take()
    assert 0 < len(taken) < FILES
    assert copying_processes(os.getpid()) == set()
    assert {thread.name for thread in threading.enumerate() if thread.name.startswith("copy-")} == set()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_copy_can_be_cancelled_before_it_begins(
    many: Path, tmp_path: Path, transfer: LocalTransfer, workers: int
) -> None:
    transfer.cancel(TAG)
    with pytest.raises(RetryableError, match="cancelled"):
        list(transfer.copy(order_many(many, tmp_path / "attempt", workers=workers)))
    assert [path for path in (tmp_path / "attempt").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("workers", [1, 2])
def test_results_that_nobody_takes_any_more_end_the_work(
    many: Path, tmp_path: Path, transfer: LocalTransfer, workers: int
) -> None:
    batches = transfer.copy(order_many(many, tmp_path / "attempt", workers=workers))
    assert next(batches)
    batches.close()  # type: ignore[attr-defined]  # the port promises less than a generator
    assert copying_processes(os.getpid()) == set()
    assert sum(path.is_file() for path in (tmp_path / "attempt").rglob("*")) < FILES


@pytest.mark.core
def test_a_killed_process_fails_what_it_had_and_the_others_go_on(
    many: Path, tmp_path: Path, transfer: LocalTransfer
) -> None:
    order = order_many(many, tmp_path / "attempt", workers=2)
    results: list[FileResult] = []
    for batch in transfer.copy(order):
        if not results:
            os.kill(min(copying_processes(os.getpid())), signal.SIGKILL)
        results.extend(batch)
    by_path = {result.path: result for result in results}
    assert len(by_path) == len(results) == FILES
    failures = [result.failure for result in results if result.failure is not None]
    assert 0 < len(failures) <= 2 * FILES // BINS
    assert {failure.family for failure in failures} == {ErrorFamily.RETRYABLE}
    assert {failure.message for failure in failures} == {"the copying process ended by signal 9"}
    for result in results:
        if result.failure is None:
            assert staged(order, result).read_bytes() == (many / result.path).read_bytes()


def test_if_all_processes_are_killed_all_the_rest_failed(many: Path, tmp_path: Path, transfer: LocalTransfer) -> None:
    order = order_many(many, tmp_path / "attempt", workers=2)
    results: list[FileResult] = []
    for batch in transfer.copy(order):
        if not results:
            for pid in copying_processes(os.getpid()):
                os.kill(pid, signal.SIGKILL)
        results.extend(batch)
    assert len({result.path for result in results}) == len(results) == FILES
    messages = {result.failure.message for result in results if result.failure is not None}
    assert messages == {"the copying process ended by signal 9", "all copying processes ended"}


_ORPHANING: Final = """
import os, signal, sys
from pathlib import Path
from gobblin_assets.jobs.copy.copyable import CopyItem
from gobblin_assets.jobs.copy.transfer.local import LocalTransfer
from tests.support.copying import copying_processes, divide, file_items, order_of
root, attempt = map(Path, sys.argv[1:])
for batch in LocalTransfer().copy(order_of(root, attempt, divide(file_items(root), 16), workers=2)):
    print(*copying_processes(os.getpid()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_copying_processes_end_with_a_driver_that_is_killed(many: Path, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _ORPHANING, str(many), str(tmp_path / "attempt")],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    pids = set(map(int, ran.stdout.split()))
    assert len(pids) == 2
    wait_until_ended(pids)


def test_two_orders_run_side_by_side(many: Path, tmp_path: Path, transfer: LocalTransfer) -> None:
    one, other = (order_many(many, tmp_path / name, workers=2) for name in ("one", "other"))
    first = transfer.copy(one)
    next(first)
    assert sum(map(len, transfer.copy(TransferOrder(one.source_root, other.attempt, other.bins, 2, "other")))) == FILES
    transfer.cancel("other")
    assert all(result.failure is None for batch in first for result in batch)


# --- an attempt that a new owner took


@pytest.mark.parametrize("workers", [1, 2])
def test_writers_whose_directory_was_taken_before_make_nothing(many: Path, tmp_path: Path, workers: int) -> None:
    order = order_many(many, tmp_path / "attempt", workers=workers)
    (tmp_path / "attempt").rename(tmp_path / "captured")
    results = copy_all(order)
    assert len(results) == FILES
    assert all("directory is gone" in str(result.failure) for result in results.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["captured"]
    assert [path for path in (tmp_path / "captured").rglob("*") if path.is_file()] == []


def test_directory_items_are_not_made_where_the_attempt_was(many: Path, tmp_path: Path) -> None:
    order = order_of(many, tmp_path / "attempt", divide([directory_item(1, many, "d1")], 1))
    (tmp_path / "attempt").rename(tmp_path / "captured")
    results = copy_all(order)
    assert len(results) == FILES // 8 + 1
    assert all("directory is gone" in str(result.failure) for result in results.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["captured"]


@pytest.mark.rotating(of=3)
@pytest.mark.core
@pytest.mark.parametrize("workers", [1, 2])
def test_writers_whose_directory_is_taken_meanwhile_fail_from_then_on(
    many: Path, tmp_path: Path, transfer: LocalTransfer, workers: int
) -> None:
    order = order_many(many, tmp_path / "attempt", workers=workers)
    results: list[FileResult] = []
    for batch in transfer.copy(order):
        if not results:
            (tmp_path / "attempt").rename(tmp_path / "captured")
        results.extend(batch)
    assert not (tmp_path / "attempt").exists()
    assert len({result.path for result in results}) == len(results) == FILES
    good = [result for result in results if result.failure is None]
    assert 0 < len(good) < FILES
    for result in good:
        assert (tmp_path / "captured" / result.staged_path).read_bytes() == (many / result.path).read_bytes()


# --- rights


@contextmanager
def other_user(number: int) -> Iterator[None]:
    """This process without root's rights."""
    os.setegid(number)
    os.seteuid(number)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="files of another user need root")
def test_what_may_not_be_read_or_given_away_is_a_refusal_of_that_file(tmp_path: Path) -> None:
    for part in (tmp_path, *tmp_path.parents[:-1]):
        part.chmod(part.stat().st_mode | 0o011)
    root, attempt = tmp_path / "source", tmp_path / "attempt"
    for path in (fill(root / "own"), fill(root / "secret"), root):
        os.chown(path, USER, USER)
    (root / "secret").chmod(0o000)
    fill(root / "of_root")
    order = order_of(root, attempt, divide(file_items(root), 1))
    os.chown(attempt / "w000", USER, USER)
    with other_user(USER):
        results = copy_all(order)
    assert results["own"].failure is None
    unreadable, foreign = results["secret"].failure, results["of_root"].failure
    assert unreadable is not None
    assert foreign is not None
    assert (unreadable.family, foreign.family) == (ErrorFamily.REJECTED, ErrorFamily.REJECTED)
    assert "source: can't read" in unreadable.message
    assert "preserve: can't give the user 0" in foreign.message
    assert "take 'u' out of preserve" in foreign.message


@pytest.mark.skipif(os.geteuid() != 0, reason="a directory of another user needs root")
def test_a_destination_that_may_not_be_written_is_a_refusal(tmp_path: Path) -> None:
    for part in (tmp_path, *tmp_path.parents[:-1]):
        part.chmod(part.stat().st_mode | 0o011)
    fill(tmp_path / "source/file")
    order = order_of(tmp_path / "source", tmp_path / "attempt", divide(file_items(tmp_path / "source"), 1))
    with other_user(USER):
        failure = copy_all(order)["file"].failure
    assert failure is not None
    assert failure.family is ErrorFamily.REJECTED
    assert "destination: can't copy" in failure.message


def test_what_an_overtaken_writer_still_has_open_is_not_taken(tmp_path: Path) -> None:
    """The directory is captured while the writer is amid its second file; the writer then goes on to its end."""
    root, old, captured = tmp_path / "in", tmp_path / "old", tmp_path / "captured"
    for name in ("1-small", "2-large", "3-late"):
        fill(root / name, os.urandom(CHUNK_BYTES * 2 if name == "2-large" else 10))
    order = replace(order_of(root, old, divide(items_of(root), 1), workers=1), journals=True)
    found: dict[str, FinishedFile] = {}

    class Captor:
        def moved(self, count: int) -> None:
            if count == CHUNK_BYTES and not captured.exists():
                old.rename(captured)
                found.update(find_finished(PosixNamedFiles(), [str(captured)], print))

        def ended(self, row: object) -> None:
            ended.append(row)

    ended: list[object] = []
    copy_bin(plan_work(order, order.bins[0]), Captor())

    assert [Path(each.path).name for each in found.values()] == ["1"]
    assert len(ended) == 3
    assert not old.exists(), "the writer made its directory again"
    again = replace(order_of(root, tmp_path / "new", order.bins, workers=1), journals=True, finished=found)
    results = copy_all(again)
    assert {name: staged(again, each).read_bytes() for name, each in results.items()} == {
        path.name: path.read_bytes() for path in root.iterdir()
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="another user needs root")
def test_who_may_not_write_everywhere_moves_directories_open(tmp_path: Path) -> None:
    """What is inside of them is moved with them; one above the dataset stays open, and is no directory to close."""
    files = PosixNamedFiles()
    directories = (
        (4, "..", Attributes(mode=0o500)),
        (2, "own", Attributes(mode=0o500)),
        (3, "a", Attributes(mode=0o755)),
    )
    item = CopyItem(
        1,
        "new",
        (),
        is_directory=True,
        directories=(("inside", Attributes(mode=0o555)),),
        desired=Attributes(mode=0o2555),
    )
    plan = CopyPlan("/source", parse_preserve("p"), (item,), directories=directories)
    for part in (tmp_path, *tmp_path.parents[:-1]):
        part.chmod(part.stat().st_mode | 0o011)
    place = tmp_path / "attempt"
    place.mkdir()
    os.chown(place, 7, 7)
    with other_user(7):
        opened = open_closed(plan, files.find_entry(str(place)), lambda: files.can_change_closed(str(place)))
    (item,) = opened.items
    assert (item.desired.mode, dict(item.directories)["inside"].mode) == (0o2755, 0o555)
    assert [desired.mode for _number, _path, desired in opened.directories] == [0o700, 0o700, 0o755]
    assert not list(place.iterdir())

    staged = {number: str(place / str(number)) for number in (1, 2, 3, 4)}
    for number, mode in ((1, 0o2755), (2, 0o700)):
        Path(staged[number]).mkdir()
        Path(staged[number]).chmod(mode)
    inode = Path(staged[1]).stat().st_ino
    closed = list(list_closed(plan, opened, files, staged))
    assert closed == [ClosedDirectory("own", 0o500), ClosedDirectory("new", 0o2555, inode)]
    assert not list(list_closed(plan, open_closed(plan, None, lambda: True), files, staged))


@pytest.mark.skipif(os.geteuid() != 0, reason="another user needs root")
def test_who_may_not_write_everywhere_takes_files_out_of_closed_directories_of_earlier_attempts(tmp_path: Path) -> None:
    for part in (tmp_path, *tmp_path.parents[:-1]):
        part.chmod(part.stat().st_mode | 0o011)
    closed = tmp_path / "earlier/closed"
    place = fill(closed / "file")
    for path in (place, closed, tmp_path / "earlier"):
        os.chown(path, 7, 7)
    os.chown(tmp_path, 7, 7)
    closed.chmod(0o555)
    found = place.stat()
    crc = google_crc32c.value(place.read_bytes())
    finished = FinishedFile(str(place), found.st_size, found.st_ino, found.st_mtime_ns, crc)
    with other_user(7):
        taken = take_file(finished, Attributes(), str(tmp_path / "taken"))
    assert taken is not None
    assert (tmp_path / "taken").stat().st_ino == found.st_ino
