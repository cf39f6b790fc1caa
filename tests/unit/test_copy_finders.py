"""Finders of datasets over trees in memory, and what their options may be."""

import datetime as dt
from collections.abc import Iterator, Mapping
from zoneinfo import ZoneInfo

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import Descend, TreeEntry
from gobblin_assets.jobs.copy.copyable import CopyableDataset, FileSet
from gobblin_assets.jobs.copy.finders import DATASET_FINDERS, open_finder
from gobblin_assets.jobs.copy.stream_finder import LOOKBACK_S_MAX, parse_date_pattern
from gobblin_assets.model.partition import PartitionWindow
from tests.support.tree_entries import ListedTree, listing

NOW = dt.datetime(2026, 11, 23, 5, 30, tzinfo=dt.UTC)


def find(options: Mapping[str, object], *paths: str, now: dt.datetime = NOW) -> list[CopyableDataset]:
    return list(open_finder(options).find_datasets(ListedTree(listing(*paths)), "root", now))


def places(found: list[CopyableDataset]) -> list[tuple[str, str, str]]:
    return [(each.name, each.source, each.destination) for each in found]


# --- globs


def test_each_match_is_a_dataset() -> None:
    paths = ["raw/orders/x/f", "raw/items/f", "raw/file", "raw/_tmp/f", "other/orders/f"]
    found = find({"kind": "glob", "pattern": "raw/[!_]*"}, *paths)
    assert places(found) == [("raw/items", "raw/items", "items"), ("raw/orders", "raw/orders", "orders")]
    assert {each.file_sets for each in found} == {(FileSet(""),)}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", [("tree", "", "")]),
        ("raw", [("raw", "raw", "")]),
        ("*/{a,b}", [("raw/a", "raw/a", "raw/a"), ("raw/b", "raw/b", "raw/b")]),
        ("raw/nothing*", []),
    ],
)
def test_the_destination_is_what_is_behind_the_literal_names(
    pattern: str, expected: list[tuple[str, str, str]]
) -> None:
    assert places(find({"pattern": pattern}, "raw/a/f", "raw/b/f", "raw/c/f")) == expected


@pytest.mark.parametrize("pattern", ["/raw", "raw/", "a//b", "a/../b", "./a", "a/**", "a[", "a{b/c}"])
def test_a_pattern_that_leads_elsewhere_is_refused(pattern: str) -> None:
    with pytest.raises(RejectedError) as refused:
        open_finder({"pattern": pattern})
    assert refused.value.field == "finder.pattern"


@pytest.mark.parametrize("pattern", ["*/*", "raw/*", "*/*/*"])
def test_work_directories_of_other_copies_are_no_datasets(pattern: str) -> None:
    found = find(
        {"pattern": pattern}, "raw/a/x/f", "raw/.gobblin/claim.json", "raw/.gobblin/job/f", "raw/a/.gobblin/x/f"
    )
    assert [each.source for each in found] == (["raw/a/x"] if pattern == "*/*/*" else ["raw/a"])


def test_a_pattern_below_a_work_directory_finds_nothing_there() -> None:
    with pytest.raises(RejectedError, match=r"raw/\.gobblin is missing") as refused:
        find({"pattern": "raw/.gobblin/*"}, "raw/.gobblin/job/f")
    assert refused.value.field == "finder.pattern"


# --- streams


def test_work_directories_have_no_streams() -> None:
    paths = ["t/.gobblin/2026/11/f", "t/clicks/.gobblin/11/f", "t/clicks/2026/11/f", "t/clicks/2026/.gobblin/f"]
    assert places(find({"kind": "stream", "pattern": "t/*/%Y/%m"}, *paths)) == [("t/clicks", "t/clicks", "clicks")]


def test_each_window_is_a_file_set_with_its_partition() -> None:
    paths = ["t/clicks/hourly/2026/11/22/23/f", "t/clicks/hourly/2026/11/23/00/f", "t/views/hourly/2026/11/23/05/f"]
    found = find({"kind": "stream", "pattern": "t/*/hourly/%Y/%m/%d/%H", "zone": "Europe/Berlin"}, *paths)
    assert places(found) == [
        ("t/clicks/hourly", "t/clicks/hourly", "clicks/hourly"),
        ("t/views/hourly", "t/views/hourly", "views/hourly"),
    ]
    hour = dt.timedelta(hours=1)
    first = dt.datetime(2026, 11, 22, 22, tzinfo=dt.UTC)
    assert found[0].file_sets == (
        FileSet("2026-11-22-23:00", "2026/11/22/23", PartitionWindow(first, first + hour)),
        FileSet("2026-11-23-00:00", "2026/11/23/00", PartitionWindow(first + hour, first + 2 * hour)),
    )


def test_windows_outside_of_the_lookback_and_after_now_are_left_out() -> None:
    days = ["2025-11-22", "2026-11-20", "2026-11-21", "2026-11-22", "2026-11-23", "2026-11-24"]
    options = {"kind": "stream", "pattern": "dt=%Y-%m-%d", "lookback_s": 86_400 + 6 * 3600}
    (found,) = find(options, *(f"dt={day}/f" for day in days))
    assert [each.key for each in found.file_sets] == ["2026-11-21", "2026-11-22", "2026-11-23"]
    assert (found.name, found.source, found.destination) == ("tree", "", "")
    del options["lookback_s"]
    (found,) = find(options, *(f"dt={day}/f" for day in days))
    assert [each.key for each in found.file_sets] == days[:-1]


def test_the_longest_lookback_leaves_dates_out_and_is_no_error() -> None:
    options = {"kind": "stream", "pattern": "%Y/%m", "lookback_s": LOOKBACK_S_MAX}
    (found,) = find(options, "1000/01/f", "1066/10/f", "2026/01/f")
    assert [each.key for each in found.file_sets] == ["1066-10-01", "2026-01-01"]


def test_directories_without_a_date_are_left_out() -> None:
    (found,) = find(
        {"kind": "stream", "pattern": "%Y/%m"},
        "2026/02/f",
        "2026/13/f",
        "2026/1/f",
        "2026/tmp/f",
        "tmp/01/f",
        "2026/03",
    )
    assert found.file_sets == (
        FileSet(
            "2026-02-01",
            "2026/02",
            PartitionWindow(
                dt.datetime(2026, 2, 1, tzinfo=dt.UTC),
                dt.datetime(2026, 3, 1, tzinfo=dt.UTC),
                (dt.date(2026, 2, 1), dt.date(2026, 3, 1)),
            ),
        ),
    )


def test_directories_outside_of_the_lookback_are_not_listed() -> None:
    asked: list[str] = []

    class Watched(ListedTree):
        def list_tree(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
            assert descend is not None

            def watch(path: str) -> bool:
                answer = descend(path)
                if answer:
                    asked.append(path)
                return answer

            return super().list_tree(root, watch)

    tree = Watched(listing("a/2025/11/22/f", "a/2026/10/01/f", "a/2026/11/23/f", "a/2026/12/01/f", "b/c/f"))
    finder = open_finder({"kind": "stream", "pattern": "*/%Y/%m/%d", "lookback_s": 3600})
    assert [each.name for each in finder.find_datasets(tree, "root", NOW)] == ["a"]
    assert asked == ["a", "a/2026", "a/2026/11", "b"]


@pytest.mark.parametrize(
    ("name", "start", "hours"),
    [
        ("2026-10-25T02", "2026-10-25T00:00+00:00", 2),  # shown twice
        ("2026-03-29T01", "2026-03-29T00:00+00:00", 1),
        ("2026-03-29T02", "2026-03-29T01:00+00:00", 0),  # jumped over
    ],
)
def test_hours_follow_the_clocks_of_the_zone(name: str, start: str, hours: int) -> None:
    dates = parse_date_pattern("%Y-%m-%dT%H", ZoneInfo("Europe/Berlin"), field="x")
    window = dates.find_window([name])
    assert window is not None
    assert (window.start.isoformat(timespec="minutes"), window.end - window.start) == (start, dt.timedelta(hours=hours))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"pattern": "%Y"}, "finder.pattern"),
        ({"pattern": "a/b"}, "finder.pattern"),
        ({"pattern": "%Y/%d"}, "finder.pattern"),
        ({"pattern": "%m/%Y"}, "finder.pattern"),
        ({"pattern": "%Y/%m/%m"}, "finder.pattern"),
        ({"pattern": "%Y/%m/%d/%H/%M"}, "finder.pattern"),
        ({"pattern": "%Y/%m/%j"}, "finder.pattern"),
        ({"pattern": "%Y/%m%"}, "finder.pattern"),
        ({"pattern": "%Y//%m"}, "finder.pattern"),
        ({"pattern": "../%Y/%m"}, "finder.pattern"),
        ({"pattern": "%Y/%m", "zone": "Mars/North"}, "finder.zone"),
        ({"pattern": "%Y/%m", "zone": "../x"}, "finder.zone"),
        ({"pattern": "%Y/%m", "lookback_s": 0}, "finder.lookback_s"),
        ({"pattern": "%Y/%m", "lookback_s": 1e12}, "finder.lookback_s"),
        ({"pattern": "%Y/%m", "lookbck_s": 1}, "finder.lookbck_s"),
        ({}, "finder.pattern"),
    ],
)
def test_wrong_options_of_streams_are_named(options: Mapping[str, object], field: str) -> None:
    with pytest.raises(RejectedError) as refused:
        open_finder({"kind": "stream", **options})
    assert refused.value.field == field


def test_percent_signs_and_literals_stand_for_themselves() -> None:
    dates = parse_date_pattern("y=%Y%%/m.%m", ZoneInfo("UTC"), field="x")
    assert dates.find_key(["y=2026%", "m.07"]) == "2026-07-01"
    assert dates.find_key(["y=2026%", "mx07"]) is None
    assert dates.find_key(["y=2026%"]) is None


# --- the registry


def test_the_registry_is_open() -> None:
    assert {"glob", "stream", "manifest"} <= set(DATASET_FINDERS.list_names())
    with pytest.raises(RejectedError, match=r"gobblin_assets\.dataset_finders") as refused:
        open_finder({"kind": "hive"})
    assert refused.value.field == "finder.kind"
    with pytest.raises(RejectedError):
        open_finder({"kind": 1})
