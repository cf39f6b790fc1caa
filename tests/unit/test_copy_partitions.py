"""Which partitions a copy may want for the file sets that its finder finds, and how much a search may look at."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import Descend, EntryKind, TreeEntry
from gobblin_assets.jobs.copy.copy_assets import as_assets, judge_sides
from gobblin_assets.jobs.copy.copy_spec import CopySpec, dataset_of
from gobblin_assets.jobs.copy.finders import BoundedTree
from gobblin_assets.jobs.copy.parsing import read_copy
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.dry_run import PlannedSlice

DAYS = {"kind": "stream", "pattern": "topics/*/%Y-%m-%d"}
DAILY = {"kind": "daily", "start": "2026-01-01"}


def read(**options: Any) -> CopySpec:
    return read_copy({"job": "mirror", "kind": "distcp", "source": "/in", "destination": "/out", **options})


@pytest.mark.parametrize(
    ("partitions", "options", "field"),
    [
        (DAILY, {"finder": {"pattern": "*"}}, "kind"),
        ({**DAILY, "kind": "hourly"}, {"finder": DAYS}, "kind"),
        ({"kind": "static", "keys": ["a"]}, {"finder": DAYS}, "kind"),
        ({"kind": "daily"}, {"finder": DAYS}, "start"),
        ({**DAILY, "zone": "Europe/Berlin"}, {"finder": DAYS}, "zone"),
        (DAILY, {"datasets": [{"urn": "photos"}]}, "partitions"),
    ],
)
def test_partitions_that_the_finder_can_t_give_are_refused(
    partitions: dict[str, Any], options: dict[str, Any], field: str
) -> None:
    with pytest.raises(RejectedError, match=field):
        read(defaults={"partitions": partitions}, **options)


def test_a_marker_outside_of_its_set_is_refused() -> None:
    with pytest.raises(RejectedError, match=r"trigger\.marker"):
        read(trigger={"marker": "../done"})


@pytest.mark.parametrize("wanted", [DAILY, {"kind": "dynamic"}, {}])
def test_only_datasets_with_named_sets_get_the_partitions_that_are_wanted(wanted: dict[str, Any]) -> None:
    job = read(finder=DAYS, defaults={"partitions": wanted})
    sets = dataset_of(job, "a", "a", "a", ["2026-01-01"])
    whole = dataset_of(job, "b", "b", "b", [])
    found = as_assets(job, {DatasetUrn("a"): sets, DatasetUrn("b"): whole})
    kinds = [each.partitions.kind for each in found.values()]
    assert kinds == [PartitionKind(wanted.get("kind", "static")), PartitionKind.NONE]


class Wide:
    """A tree of many files."""

    mtime_precision_ns = 1

    def list_tree(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        del root, descend
        for number in range(1_000):
            yield TreeEntry(str(number), EntryKind.FILE, FileIdentity(0, 1, 0))


@pytest.mark.parametrize("list_tree", [BoundedTree.list_tree, BoundedTree.list_without_files])
def test_a_search_ends_after_so_many_entries(list_tree: Callable[[BoundedTree, str], Iterator[TreeEntry]]) -> None:
    """Also one for directories, in a tree that has to look at each file."""
    assert len(list(list_tree(BoundedTree(Wide(), 1_000), "/in"))) == 1_000
    with pytest.raises(RejectedError, match="has looked at 999 entries"):
        list(list_tree(BoundedTree(Wide(), 999), "/in"))


def test_sides_that_can_t_be_compared_do_not_agree() -> None:
    planned = PlannedSlice(DatasetUrn("photos"), None, Mode.APPEND, error="the source is away")
    result = judge_sides("sides_agree", planned)
    assert not result.passed
    assert "the source is away" in result.description


def test_sides_do_not_agree_while_files_wait() -> None:
    planned = PlannedSlice(DatasetUrn("photos"), None, Mode.APPEND, degraded=("2 files wait for later runs",))
    result = judge_sides("sides_agree", planned)
    assert not result.passed
    assert "2 files wait for later runs" in result.description
