"""Finders, manifests and filters over real directories."""

import datetime as dt
import json
import os
from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.posix_tree import PosixTree
from gobblin_assets.jobs.copy.difference import Deletes, DifferenceRules, compare_trees
from gobblin_assets.jobs.copy.finders import BoundedTree, open_finder
from gobblin_assets.jobs.copy.globs import list_chosen, parse_filters
from gobblin_assets.jobs.copy.manifest import list_named
from tests.support.file_systems import write

NOW = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)


def test_a_manifest_is_copied_and_deleted_to_the_letter(tmp_path: Path) -> None:
    source, destination, manifest = tmp_path / "source", tmp_path / "destination", tmp_path / "files.jsonl"
    for path in ("d/new", "d/unnamed", "kept"):
        write(source / path)
    for path in ("old", "unnamed", "kept"):
        write(destination / path)
    os.utime(source / "kept", ns=(0, 5_000_000_000))
    os.utime(destination / "kept", ns=(0, 2_000_000_000))
    named = [{"path": "d/new"}, {"path": "kept"}, {"path": "old", "delete": True}]
    manifest.write_text("\n".join(map(json.dumps, named)))
    tree = PosixTree("source")
    (dataset,) = open_finder({"kind": "manifest", "path": str(manifest)}).find_datasets(tree, str(source), NOW)
    (files,) = (each.files for each in dataset.file_sets)
    copied = [file.path for file in files if not file.is_deleted]
    found = compare_trees(
        list_named(tree, str(source), copied, required=True),
        list_named(tree, str(destination), [file.path for file in files], required=False),
        DifferenceRules(deletes=Deletes.ALL, empty_source=True),
    )
    assert [(each.kind.value, each.path, each.why, [below.path for below in each.below]) for each in found] == [
        ("create_tree", "d", "is new", ["d/new"]),
        ("update", "kept", "is newer by 3 s", []),
        ("delete", "old", "the source lacks it", []),
    ]
    assert dataset.name == "files"


@pytest.mark.parametrize("wrong", ["missing", "directory", "below a file"])
def test_a_manifest_that_is_not_there_is_refused(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "m"
    if wrong == "directory":
        path.mkdir()
    elif wrong == "below a file":
        path = write(path) / "below"
    with pytest.raises(RejectedError, match="can't read the manifest") as refused:
        open_finder({"kind": "manifest", "path": str(path)}).find_datasets(PosixTree("source"), str(tmp_path), NOW)
    assert refused.value.field == "finder.path"


def test_finders_and_filters_open_only_what_they_need(tmp_path: Path) -> None:
    for path in ("raw/a/f.csv", "raw/a/.gobblin/x", "raw/b/f.tmp", "raw/b/f.csv"):
        write(tmp_path / path)
    tree = PosixTree("source", hidden=frozenset({".gobblin"}))
    found = open_finder({"pattern": "raw/*"}).find_datasets(tree, str(tmp_path), NOW)
    assert [each.source for each in found] == ["raw/a", "raw/b"]
    filters = parse_filters(exclude=["/raw/a/.gobblin/", "*.tmp"])
    chosen = list_chosen(tree, str(tmp_path), filters, bare_directories=True)
    assert [entry.path for entry in chosen] == ["raw", "raw/a", "raw/a/f.csv", "raw/b", "raw/b/f.csv"]


@pytest.mark.parametrize("wraps", [False, True])
def test_finders_pass_over_files_whatever_their_names_are(tmp_path: Path, *, wraps: bool) -> None:
    for path in ("raw/a/f", "raw/b/f"):
        write(tmp_path / path)
    for place in (tmp_path, tmp_path / "raw", tmp_path / "raw/a"):
        write(place / os.fsdecode(b"caf\xe9.txt"))
    tree = PosixTree("source")
    finder = open_finder({"pattern": "raw/*"})
    found = finder.find_datasets(BoundedTree(tree, 3) if wraps else tree, str(tmp_path), NOW)
    assert [each.source for each in found] == ["raw/a", "raw/b"]

    (tmp_path / "raw" / os.fsdecode(b"caf\xe9")).mkdir()
    with pytest.raises(RejectedError, match="expected names in UTF-8") as refused:
        finder.find_datasets(tree, str(tmp_path), NOW)
    assert str(tmp_path / "raw") in str(refused.value)


def test_a_link_that_may_be_a_dataset_is_not_passed_over(tmp_path: Path) -> None:
    """What it leads to may be away for now."""
    write(tmp_path / "raw/a/f")
    (tmp_path / "raw/b").symlink_to("../away")
    tree = PosixTree("source", follow_links=True)
    with pytest.raises(RejectedError, match="raw/b leads"):
        open_finder({"pattern": "raw/*"}).find_datasets(tree, str(tmp_path), NOW)
