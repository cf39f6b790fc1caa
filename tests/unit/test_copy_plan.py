"""Plans of copies: from differences to items, removals and directories, and the budget of a run."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.jobs.copy.budgets import CopyBudget, RunBudget, parse_tiers
from gobblin_assets.jobs.copy.copy_plan import CopyPlan, CopyPlanner
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec
from gobblin_assets.jobs.copy.difference import Deletes, DifferenceRules, compare_trees
from gobblin_assets.jobs.copy.globs import match_any, parse_glob
from gobblin_assets.jobs.copy.memory import MemoryRoom
from gobblin_assets.jobs.copy.source_directories import place_of_origin
from gobblin_assets.jobs.copy.transfer.preserve import parse_preserve
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.urn import DatasetUrn


def entry(path: str, size_bytes: int = 1, *, mtime_ns: int = 1, kind: EntryKind = EntryKind.FILE) -> TreeEntry:
    return TreeEntry(path, kind, FileIdentity(size_bytes, hash(path) % 1_000, mtime_ns), 0o555, 1, 2)


def directory(path: str) -> TreeEntry:
    return entry(path, kind=EntryKind.DIRECTORY)


def plan(
    source: Sequence[TreeEntry],
    destination: Sequence[TreeEntry] = (),
    *,
    place: str = "",
    bytes_max: int | None = None,
    files_max: int | None = None,
    missing: Mapping[str, TreeEntry | None] = MappingProxyType({}),
    shared: RunBudget | None = None,
    go_first: Sequence[str] = (),
) -> CopyPlan:
    budgets = (RunBudget(CopyBudget(files_max, bytes_max)), shared or RunBudget(CopyBudget()))
    planner = CopyPlanner(
        *("/in", place, parse_preserve("pt"), match_any(CopyDatasetSpec().metadata, field="metadata")),
        budgets=budgets,
        tiers=parse_tiers(go_first),
    )
    rules = DifferenceRules(deletes=Deletes.ALL if destination else Deletes.OFF)
    return planner.plan(missing, compare_trees(source, destination, rules))


def test_each_difference_becomes_its_change() -> None:
    found = plan(
        [entry("_SUCCESS"), entry("new"), entry("old", 2), entry("same")],
        [entry("gone"), entry("old", 1), entry("same")],
    )
    assert sorted((change.path, change.action) for change in found.changes) == [
        ("_SUCCESS", "create"),
        ("gone", "remove"),
        ("new", "create"),
        ("old", "replace"),
    ]
    (replaced,) = [item for item in found.items if item.number in found.replaced]
    assert (replaced.path, found.replaced[replaced.number].size_bytes) == ("old", 1)
    assert [path for _number, path, _identity in found.removals] == ["gone"]
    assert [item.path for item in found.items if item.number in found.metadata] == ["_SUCCESS"]
    assert len({*found.replaced, *(item.number for item in found.items), *(n for n, *_ in found.removals)}) == 4


@pytest.mark.parametrize("name", ["_SUCCESS", "_SUCCESS.crc", "metadata/v1.json", "orders.manifest"])
@pytest.mark.parametrize("directory", ["", "deep/down/"])
def test_what_says_that_files_are_there_is_metadata(name: str, directory: str) -> None:
    globs = [parse_glob(text, field="metadata") for text in CopyDatasetSpec().metadata]
    assert any(glob.matches(directory + name) for glob in globs)
    assert not any(glob.matches(f"{directory}orders.csv") for glob in globs)


def test_a_new_directory_is_one_item_whose_owner_may_move_it() -> None:
    found = plan([directory("d"), directory("d/e"), entry("d/e/f"), entry("d/x")])
    (item,) = found.items
    assert (item.path, item.is_directory, [file.path for file in item.files]) == ("d", True, ["d/e/f", "d/x"])
    assert item.directories[0][0] == "e"
    assert item.desired.mode == 0o755
    assert item.files[0].desired.mode == 0o555


@pytest.mark.parametrize(("name", "is_metadata"), [("metadata/v1", True), ("x", False)])
def test_a_new_directory_is_metadata_if_all_of_its_files_are(name: str, is_metadata: bool) -> None:
    files = [entry("d/_SUCCESS"), directory("d/metadata"), entry("d/metadata/v0")]
    found = plan([directory("d"), *files, entry(f"d/{name}")])
    assert [item.number in found.metadata for item in found.items] == [is_metadata]


def test_a_new_directory_without_files_is_made_with_those_inside() -> None:
    found = plan([directory("d"), directory("d/e")])
    assert found.items == ()
    assert [path for _number, path, _desired in found.directories] == ["d", "d/e"]


def test_paths_are_those_of_the_dataset_and_origins_those_of_the_file_set() -> None:
    found = plan([entry("f")], place="day=1", missing={"..": None, "day=1": directory("day=1")})
    assert [item.path for item in found.items] == ["day=1/f"]
    assert found.items[0].files[0].origin.path == "f"
    assert [(path, desired.mode) for _number, path, desired in found.directories] == [("..", None), ("day=1", 0o755)]


@pytest.mark.parametrize(
    ("source", "destination", "path", "expected"),
    [
        ("albums", "albums", "", "albums"),
        ("albums", "photos", "2026/01", "albums/2026/01"),
        ("logs/app", "logs/app", "..", "logs"),
        ("logs/app", "logs/other", "..", "logs"),
        ("a/b/c", "a/b/c", "../..", "a"),
        ("logs/app", "archive/app", "..", None),
        ("x/b/c", "a/b/c", "../..", None),
        ("a/x/c", "a/b/c", "../..", None),
        ("app", "logs/app", "..", None),
        ("", "all", "", ""),
    ],
)
def test_a_new_directory_is_like_the_source_s_of_the_same_name(
    source: str, destination: str, path: str, expected: str | None
) -> None:
    assert place_of_origin(source, destination, path) == expected


def test_what_a_budget_leaves_waits_and_is_counted() -> None:
    source = [entry("a", 5), entry("b", 5), entry("c", 1)]
    found = plan(source, bytes_max=6)
    assert [item.path for item in found.items] == ["a", "c"]
    assert waiting(found) == ["1 files of 5 bytes wait for later runs (files_per_run_max, bytes_per_run_max)"]
    found = plan(source, files_max=1)
    assert [item.path for item in found.items] == ["a"]
    assert waiting(found) == ["2 files of 6 bytes wait for later runs (files_per_run_max, bytes_per_run_max)"]


def waiting(found: CopyPlan, go_first: Sequence[str] = (), priority: int = 0) -> list[str]:
    return list(found.waiting.describe(parse_tiers(go_first), priority))


def test_urgent_files_go_first_and_what_waits_is_said_by_tier() -> None:
    source = [entry("a"), entry("b.now"), entry("c.soon"), directory("d"), entry("d/x"), entry("d/y.now"), entry("e")]
    order = ("*.now", "*.soon")

    found = plan(source, files_max=4, go_first=order)

    assert [item.path for item in found.items] == ["b.now", "d", "c.soon"]
    (said,) = waiting(found, order, priority=3)
    assert said.endswith("(files_per_run_max, bytes_per_run_max): 2 of the others; priority 3")
    (said,) = waiting(plan(source, files_max=1, go_first=order), order)
    assert said.startswith("5 files of 5 bytes wait")
    assert said.endswith(": 2 of `*.now`, 1 of `*.soon`, 2 of the others")
    assert [item.path for item in plan(source, go_first=order).items] == ["b.now", "d", "c.soon", "a", "e"]


def test_a_budget_of_a_run_is_shared_by_its_file_sets() -> None:
    shared = RunBudget(CopyBudget(files_max=3))
    assert plan([entry("a"), entry("b")], shared=shared).file_count == 2
    found = plan([entry("c"), entry("d")], shared=shared)
    assert [item.path for item in found.items] == ["c"]
    assert plan([entry("e")], shared=shared).is_empty


def test_a_dataset_s_file_sets_share_what_is_remembered() -> None:
    room, photos, logs = MemoryRoom(10), DatasetUrn("photos"), DatasetUrn("logs")
    known = {"a": 4, "b": 3}
    assert room.take(photos, "a", 6, known)
    assert not room.take(photos, "c", 2, known), "a has grown, and b is there"
    assert room.take(photos, "c", 1, known)
    assert room.take(logs, "a", 10, {})
    assert not room.take(photos, "b", 4, known)
    assert room.take(photos, "d", 3, known), "b is not remembered any more"


def test_an_item_larger_than_the_budget_does_not_wait_for_ever() -> None:
    found = plan([entry("a", 50)], bytes_max=6)
    assert [item.path for item in found.items] == ["a"]
    assert not waiting(found)


def test_what_can_t_give_way_refuses_the_whole_plan() -> None:
    with pytest.raises(RejectedError, match="1 names can't be published: a is a file in the source and a directory"):
        plan([entry("a")], [directory("a")])
