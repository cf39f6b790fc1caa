"""One suite for every file system: POSIX by the kernel's exclusive rename, by link and unlink, HDFS, the simulated one.

``test_posix`` tests what only POSIX has, and ``tests.simulation`` what only the simulated one has.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gobblin_assets.errors import ConflictError, RejectedError, RetryableError
from gobblin_assets.fs.file_system import RenameOutcome
from tests.support.places import Place, identity_at

# --- identities and listings


def test_an_identity_survives_a_rename_and_tells_a_copy_apart(place: Place) -> None:
    source, target = place.write(place.at("a")), place.at("b")
    before = identity_at(place, source)
    assert place.fs.rename_no_replace(source, target) is RenameOutcome.RENAMED
    assert identity_at(place, target).matches(before)
    assert not identity_at(place, place.write(place.at("copy"))).matches(before)
    assert place.fs.find_identity(source) is None
    assert place.fs.find_identity(f"{target}/below a file") is None


def test_a_directory_has_no_identity(place: Place) -> None:
    with pytest.raises(ConflictError):
        place.fs.find_identity(place.mkdir(place.at("x")))


def test_a_listing_has_every_file_at_any_depth_in_path_order(place: Place) -> None:
    names = ["a/b/c/1", "a/b-1", "a.b", "a/b/0", "_x/y", ".z", "é", "a b"]
    paths = sorted(place.write(place.at(f"root/{name}"), name.encode()) for name in names)
    found = place.fs.list_files(place.at("root"))
    assert [file.path for file in found] == paths
    assert all(file.identity == place.fs.find_identity(file.path) for file in found)


def test_a_missing_directory_lists_as_empty_and_a_file_is_a_conflict(place: Place) -> None:
    assert place.fs.list_files(place.at("none")) == []
    with pytest.raises(ConflictError):
        place.fs.list_files(place.write(place.at("file")))
    assert place.fs.list_files(place.at("file/below a file/deep")) == []


def test_a_uri_keeps_every_character(place: Place) -> None:
    scheme, path = place.fs.to_uri("/a b/%2F~1").split("://")
    assert (scheme, path.removeprefix(path.partition("/")[0])) == (place.fs.scheme, "/a b/%2F~1")


def test_an_input_can_be_read_from_any_place(place: Place) -> None:
    with place.fs.open_input(place.write(place.at("file"), b"0123456789")) as stream:
        stream.seek(-3, os.SEEK_END)
        assert stream.read() == b"789"
        stream.seek(2)
        assert stream.read(2) == b"23"
    with pytest.raises(RejectedError):
        place.fs.open_input(place.at("none"))


def test_a_new_file_holds_what_was_written_once_it_is_closed(place: Place) -> None:
    with place.fs.create_file(place.at("new")) as stream:
        stream.write(b"0123")
        stream.write(b"456")
    with place.fs.open_input(place.at("new")) as stream:
        assert stream.read() == b"0123456"
    with pytest.raises(ConflictError):
        place.fs.create_file(place.at("new"))
    with pytest.raises(RejectedError):
        place.fs.create_file(place.at("none/new"))


# --- directories


def test_directories_are_made_with_their_parents_and_twice_is_fine(place: Place) -> None:
    for _ in range(2):
        place.fs.make_directories(place.at("a/b/c"))
    assert place.fs.is_directory(place.at("a/b/c"))
    assert not place.fs.is_directory(place.at("a/none"))
    assert not place.fs.is_directory(place.write(place.at("file")))


@pytest.mark.parametrize("below", ["file", "file/a", "file/a/b"])
def test_a_file_where_a_directory_should_be_is_a_conflict(place: Place, below: str) -> None:
    place.write(place.at("file"))
    with pytest.raises(ConflictError):
        place.fs.make_directories(place.at(below))


def test_an_empty_directory_is_removed_and_a_full_one_stays(place: Place) -> None:
    fs, empty, full = place.fs, place.mkdir(place.at("empty")), place.at("full")
    file = place.write(f"{full}/file")
    assert fs.remove_empty_directory(empty)
    assert fs.remove_empty_directory(empty)
    assert not fs.remove_empty_directory(full)
    with pytest.raises(ConflictError):
        fs.remove_empty_directory(file)
    with pytest.raises(ConflictError):
        fs.remove_tree(file)
    fs.remove_tree(full)
    fs.remove_tree(full)
    assert place.list_all() == []


def test_a_tree_goes_away_while_others_remove_it_too(place: Place) -> None:
    # Closing a file on HDFS waits.
    for n in range(30 if place.fs.scheme == "hdfs" else 300):
        place.write(place.at(f"tree/{n % 30}/{n}"))
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(place.fs.remove_tree, place.at("tree")) for _ in range(4)]:
            done.result()
    assert not place.exists(place.at("tree"))


def test_directories_are_made_while_others_remove_the_empty_parent(place: Place) -> None:
    stop = threading.Event()

    def remove() -> None:
        while not stop.is_set():
            place.fs.remove_empty_directory(place.at("a"))

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        for n in range(200):
            path = place.at(f"a/{n}")
            try:
                place.fs.make_directories(path)
            except RetryableError:
                continue  # the bound was reached: an answer, and no half-made directory counts as made
            assert place.fs.is_directory(path)
            place.remove(path)
    finally:
        stop.set()
        remover.join()


# --- renames


@pytest.mark.parametrize("source_kind", ["file", "directory"])
@pytest.mark.parametrize("target_kind", ["file", "full directory", "empty directory"])
def test_a_rename_never_replaces_anything(place: Place, source_kind: str, target_kind: str) -> None:
    file, target = place.write(place.at("source/file"), b"new"), place.at("target")
    source = file if source_kind == "file" else place.at("source")
    inside = target if target_kind == "file" else f"{target}/file"
    if target_kind == "empty directory":
        place.mkdir(target)
    else:
        place.write(inside, b"old")
    before = place.list_all(), place.fs.list_files(place.at("source"))
    identity = None if target_kind == "empty directory" else identity_at(place, inside)
    assert place.fs.rename_no_replace(source, target) is RenameOutcome.TARGET_EXISTS
    assert (place.list_all(), place.fs.list_files(place.at("source"))) == before
    assert place.read(file) == b"new"
    if identity is not None:
        assert identity_at(place, inside) == identity
        assert place.read(inside) == b"old"


def test_a_directory_moves_with_all_its_contents(place: Place) -> None:
    place.write(place.at("source/deep/file"), b"x")
    assert place.fs.rename_no_replace(place.at("source"), place.at("target")) is RenameOutcome.RENAMED
    assert place.read(place.at("target/deep/file")) == b"x"
    assert place.list_all() == ["target", "target/deep", "target/deep/file"]


def test_a_missing_source_is_an_answer_and_a_missing_parent_is_refused(place: Place) -> None:
    assert place.fs.rename_no_replace(place.at("none"), place.at("x")) is RenameOutcome.SOURCE_MISSING
    place.write(place.at("directory/file"))
    for source in (place.write(place.at("file")), place.at("directory")):
        with pytest.raises(RejectedError, match="parent") as refused:
            place.fs.rename_no_replace(source, place.at("missing/x"))
        assert refused.value.field == "destination"
        assert place.exists(source)


def test_a_directory_is_never_renamed_into_itself(place: Place) -> None:
    file = place.write(place.at("a/b/file"))
    with pytest.raises(RejectedError):
        place.fs.rename_no_replace(place.at("a"), place.at("a/b/c"))
    assert place.read(file) == b"content"


@pytest.mark.parametrize("kind", ["file", "directory"])
@pytest.mark.parametrize("own_sources", [True, False], ids=["own-sources", "one-source"])
def test_of_racing_threads_exactly_one_wins_each_name(place: Place, kind: str, own_sources: bool) -> None:
    start, races = threading.Barrier(2), 40
    inside = "" if kind == "file" else "/file"

    def race(racer: int) -> list[RenameOutcome]:
        answers = []
        for n in range(races):
            start.wait(60)
            source = place.at(f"{n}-{racer if own_sources else 'shared'}")
            answers.append(place.fs.rename_no_replace(source, place.at(f"target-{n}")))
        return answers

    for n in range(races):
        for racer in (0, 1) if own_sources else ("shared",):
            place.write(place.at(f"{n}-{racer}{inside}"), str(racer).encode())
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(race, range(2)))
    for n, pair in enumerate(zip(*answers, strict=True)):
        assert pair.count(RenameOutcome.RENAMED) == 1, (n, pair)
        winner = str(pair.index(RenameOutcome.RENAMED)) if own_sources else "shared"
        assert place.read(place.at(f"target-{n}{inside}")) == winner.encode()


def test_a_crash_between_link_and_unlink_is_told_by_the_identities_and_finished_by_removing_the_source(
    place: Place,
) -> None:
    source, target = place.write(place.at("source")), place.at("target")
    place.link(source, target)
    staged = identity_at(place, source)
    assert place.fs.rename_no_replace(source, target) is RenameOutcome.TARGET_EXISTS
    assert identity_at(place, target).matches(staged)
    assert place.fs.remove_file(source, staged)
    assert identity_at(place, target) == staged
    assert place.list_all() == ["target"]


# --- removal


def test_only_the_file_that_is_meant_is_removed(place: Place) -> None:
    path, kept = place.write(place.at("file"), b"one"), place.at("kept")
    meant = identity_at(place, path)
    place.move(path, kept)
    place.write(path, b"two")
    with pytest.raises(ConflictError):
        place.fs.remove_file(path, meant)
    assert place.read(path) == b"two"
    assert place.fs.remove_file(kept, meant)
    assert place.fs.remove_file(kept, meant)
    assert place.list_all() == ["file"]


# --- durability


def test_syncs_change_nothing_that_is_seen_and_skip_missing_directories(place: Place) -> None:
    file = place.write(place.at("a/file"))
    before = place.fs.list_files(place.at("a"))
    place.fs.make_durable([file])
    place.fs.sync_directories([place.at("a"), place.at("none"), place.at("a")])
    place.fs.sync_directories([])
    place.fs.make_durable([])
    assert place.fs.list_files(place.at("a")) == before
    assert place.list_all() == ["a", "a/file"]


def test_a_file_that_vanished_is_no_durable_file(place: Place) -> None:
    with pytest.raises(RetryableError, match="disappeared"):
        place.fs.make_durable([place.at("none")])


@pytest.mark.parametrize("file_count", [1, 10_000])
def test_a_durable_tree_has_all_that_the_block_wrote(place: Place, file_count: int) -> None:
    root = place.mkdir(place.at("tree"))
    with place.fs.durable_tree(root, file_count=file_count):
        place.write(place.at("tree/file"))
        place.write(place.at("tree/deep/er/file"))
    assert place.list_all() == ["tree", "tree/deep", "tree/deep/er", "tree/deep/er/file", "tree/file"]


def test_a_tree_that_is_missing_is_refused_before_the_block(place: Place) -> None:
    with pytest.raises(RejectedError, match="ENOENT"), place.fs.durable_tree(place.at("none"), file_count=1):
        pytest.fail("the block ran")


def test_a_tree_that_disappears_is_not_durable(place: Place) -> None:
    root = place.mkdir(place.at("tree"))
    with pytest.raises(RetryableError, match="disappeared"), place.fs.durable_tree(root, file_count=1):
        place.move(root, place.at("captured"))


def test_an_error_of_the_block_passes_through_a_durable_tree(place: Place) -> None:
    root = place.mkdir(place.at("tree"))
    with pytest.raises(ZeroDivisionError), place.fs.durable_tree(root, file_count=1):
        raise ZeroDivisionError
