"""The answers for a destination that is full, read-only or badly named: the same on every file system."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from gobblin_assets.errors import RejectedError, RetryableError
from tests.support.places import Place, identity_at


def name_of(place: Place, errno_name: str) -> str:
    """HDFS has names of its own for what POSIX's numbers mean."""
    if place.fs.scheme != "hdfs":
        return errno_name
    return {"ENOTDIR": "ParentNotDirectory", "ENAMETOOLONG": "PathComponentTooLong"}[errno_name]


def test_a_probe_leaves_nothing_behind(place: Place) -> None:
    place.write(place.at("there/kept"))
    place.fs.probe(place.at("there/.staging/deep"), place.at("there/lake"))
    assert place.list_all() == ["there", "there/kept"]


def test_a_destination_is_made_with_its_parents_and_being_there_is_fine(place: Place) -> None:
    for _ in range(2):
        place.fs.make_destination(place.at("new/lake"))
        assert place.list_all() == ["new", "new/lake"]


def test_probes_of_one_destination_at_once_all_pass(place: Place) -> None:
    def probe(_: int) -> None:
        for _ in range(5):
            place.fs.probe(place.at("lake/.staging"), place.at("lake/data"))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(probe, range(2)))
    assert set(place.list_all()) <= {"lake", "lake/.staging", "lake/data"}


def test_a_destination_below_a_file_is_refused(place: Place) -> None:
    file = place.write(place.at("file"))
    with pytest.raises(RejectedError, match=name_of(place, "ENOTDIR")) as refused:
        place.fs.probe(f"{file}/.staging", f"{file}/lake")
    assert refused.value.field == "destination"
    assert place.list_all() == ["file"]


def test_a_full_disk_is_retryable_and_the_probe_cleans_up(place: Place) -> None:
    with place.on_small_disk() as disk:
        disk.fill(disk.at("filler"))
        with pytest.raises(RetryableError) as failed:
            disk.fs.probe(disk.at("staging"), disk.at("lake"))
        assert failed.value.fields["errno"] == "ENOSPC"
        assert "space" in failed.value.hint
        assert disk.list_all() == ["filler"]
        disk.remove(disk.at("filler"))
        disk.fs.probe(disk.at("staging"), disk.at("lake"))


def test_a_read_only_destination_is_refused_with_the_fix(place: Place) -> None:
    with place.on_small_disk() as disk:
        empty, file = disk.mkdir(disk.at("empty")), disk.write(disk.at("file"))
        before = identity_at(disk, file)
        disk.make_read_only()
        for refused in (
            lambda: disk.fs.probe(disk.at(".staging"), disk.at("lake")),
            lambda: disk.fs.make_directories(disk.at("new")),
            lambda: disk.fs.rename_no_replace(file, disk.at("other")),
            lambda: disk.fs.remove_file(file, before),
            lambda: disk.fs.remove_empty_directory(empty),
            lambda: disk.fs.remove_tree(empty),
        ):
            with pytest.raises(RejectedError, match="EROFS") as caught:
                refused()
            assert caught.value.field == "destination"
            assert "writing" in caught.value.hint
        with pytest.raises(RejectedError, match=r"can't (make|write)"):
            disk.fs.probe(disk.at("empty"), disk.at("empty"))
        assert disk.read(file) == b"content"
        assert disk.list_all() == ["empty", "file"]


def test_a_name_that_is_too_long_is_refused(place: Place) -> None:
    with pytest.raises(RejectedError, match=name_of(place, "ENAMETOOLONG")):
        place.fs.make_directories(place.at("x" * 256))
