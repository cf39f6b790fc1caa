"""Files that are written while they are copied: they stop their file set, or are left out where the job says so."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy.file_staging import FileStaging
from gobblin_assets.model.state import DatasetOutcome
from tests.support import copy_lake
from tests.support.copy_lake import CopyLake, CopyWorld, Open, files_of

job = copy_lake.job

PATHS: Final = ("albums/a", "albums/busy", "albums/new/b", "albums/new/busy", "albums/new/_SUCCESS", "albums/gone")


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> CopyLake:
    made = CopyLake(database_url, str(tmp_path), urns=("albums",))
    for path in PATHS:
        made.write(path, 1)
    return made


@contextmanager
def changing(
    monkeypatch: pytest.MonkeyPatch, *, lake: CopyLake, paths: tuple[str, ...], gone: tuple[str, ...] = ()
) -> Iterator[None]:
    """Somebody writes these files whenever they were planned, before they are copied."""
    copy = FileStaging._copy

    def write_and_copy(self: FileStaging, *arguments: Any) -> Any:
        for path in paths:
            with (lake.source / path).open("ab") as stream:
                stream.write(b"more\n")
        for path in gone:
            (lake.source / path).unlink(missing_ok=True)
        return copy(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(FileStaging, "_copy", write_and_copy)
        yield


def run(world: CopyWorld) -> DatasetOutcome:
    world.lines.clear()
    (report,) = world.run().datasets
    assert report.error is None, report.error
    return report.outcome


def test_by_default_one_of_them_stops_its_file_set(lake: CopyLake, job: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    world = job(deletes="ours")
    with changing(monkeypatch, lake=lake, paths=("albums/busy",)):
        (report,) = world.run().datasets
    assert "albums/busy" in str(report.error)
    assert not files_of(lake.tree)


@pytest.mark.parametrize("split", [1 << 30, 5])
def test_they_are_left_out_and_tried_again(
    lake: CopyLake, job: Open, monkeypatch: pytest.MonkeyPatch, split: int
) -> None:
    world = job(deletes="ours", on_change="leave_out", split={"bytes_min": split})
    with changing(monkeypatch, lake=lake, paths=("albums/busy", "albums/new/busy"), gone=("albums/gone",)):
        assert run(world) == DatasetOutcome.PARTIAL
    assert {*files_of(lake.tree)} == {"albums/a", "albums/new/b"}, "metadata would vouch for what is left out"
    said = " ".join(world.lines)
    assert "3 files of the source changed while they were copied, and are left to a later run" in said
    assert "busy" in said

    assert run(world) == DatasetOutcome.COMMITTED
    assert files_of(lake.tree) == files_of(lake.source)

    # A file that was published keeps its old version, and nothing is removed while another one is left out.
    (lake.source / "albums/a").unlink()
    lake.write("albums/busy", 2)
    lake.write("albums/new/b", 2)
    before = files_of(lake.tree)
    with changing(monkeypatch, lake=lake, paths=("albums/busy",)):
        assert run(world) == DatasetOutcome.PARTIAL
    now = files_of(lake.tree)
    assert now["albums/busy"] == before["albums/busy"]
    assert now["albums/new/b"] == files_of(lake.source)["albums/new/b"]
    assert "albums/a" in now
    assert run(world) == DatasetOutcome.COMMITTED
    assert files_of(lake.tree) == files_of(lake.source)
    world.check_copied()


def test_if_all_of_them_change_nothing_is_published(lake: CopyLake, job: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    world = job(deletes="ours", on_change="leave_out")
    with changing(monkeypatch, lake=lake, paths=PATHS):
        assert run(world) == DatasetOutcome.PARTIAL
    assert not files_of(lake.tree)
    assert run(world) == DatasetOutcome.COMMITTED
    assert files_of(lake.tree) == files_of(lake.source)


def test_a_file_that_gives_way_stays_while_the_other_is_left_out(
    lake: CopyLake, job: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = job(deletes="ours", on_change="leave_out")
    assert run(world) == DatasetOutcome.COMMITTED
    for path in ("albums/new/b", "albums/new/busy", "albums/new/_SUCCESS"):
        (lake.source / path).unlink()
    (lake.source / "albums/new").rmdir()
    lake.write("albums/new", 2)
    before = files_of(lake.tree)
    with changing(monkeypatch, lake=lake, paths=("albums/new",)):
        assert run(world) == DatasetOutcome.PARTIAL
    assert files_of(lake.tree) == before
    assert run(world) == DatasetOutcome.COMMITTED
    assert files_of(lake.tree) == files_of(lake.source)


def test_a_file_that_fails_for_another_reason_is_not_left_out(
    lake: CopyLake, job: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = job(deletes="ours", on_change="leave_out")
    monkeypatch.setattr(FileStaging, "_checksum_of", lambda _self, _path: 0)
    world = job({"verify": "reread"}, deletes="ours", on_change="leave_out")
    (report,) = world.run().datasets
    assert "reads differently" in str(report.error)


@pytest.mark.parametrize("other", [{"skip_unchanged_directories": True}, {"converters": ["gzip"]}])
def test_options_that_would_overlook_them_are_refused(job: Open, other: dict[str, Any]) -> None:
    with pytest.raises(RejectedError, match="on_change"):
        job(on_change="leave_out", **other).run()
