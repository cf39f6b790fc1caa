"""Differences of two listings: against a dictionary-based oracle, and case by case."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.errors import ConflictError, RejectedError, RetryableError
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.jobs.copy.difference import (
    Deletes,
    Difference,
    DifferenceKind,
    DifferenceRules,
    LinkPolicy,
    compare_trees,
)
from gobblin_assets.jobs.copy.sameness import Sameness, SameRule
from tests.support.tree_entries import S_NS, directory_entry, file_entry, link_entry, listing, with_parents

Kind = DifferenceKind


def differences(
    source: Sequence[TreeEntry | str], destination: Sequence[TreeEntry | str], rules: DifferenceRules | None = None
) -> list[Difference]:
    return list(compare_trees(listing(*source), listing(*destination), rules or DifferenceRules()))


def shown(found: Sequence[Difference]) -> list[tuple[str, str, str]]:
    return [(each.kind.value, each.path, each.why) for each in found]


# --- against an oracle

# Bytes below and above the slash, and names that begin with one another: where orders of names and of paths differ.
NAMES = st.sampled_from(["a", "a!", "a.b", "a0", "b", "é", "a!!"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
KINDS = st.sampled_from([EntryKind.FILE] * 4 + [EntryKind.DIRECTORY] * 2 + [EntryKind.LINK])


@st.composite
def trees(draw: st.DrawFn) -> list[TreeEntry]:
    chosen = draw(st.dictionaries(PATHS, st.tuples(KINDS, st.integers(1, 2)), max_size=12))
    parents = {path[:n] for path in chosen for n, letter in enumerate(path) if letter == "/"}
    made = []
    for path, (kind, size) in chosen.items():
        if path in parents or kind is EntryKind.DIRECTORY:
            made.append(directory_entry(path))
        else:
            made.append(file_entry(path, size) if kind is EntryKind.FILE else link_entry(path))
    return with_parents(made)


def expected(source: Sequence[TreeEntry], destination: Sequence[TreeEntry], deletes: Deletes) -> dict[str, Kind]:
    mine, theirs = {each.path: each for each in source}, {each.path: each for each in destination}
    found: dict[str, Kind] = {}
    shadowed: list[str] = []
    for path in sorted(mine.keys() | theirs.keys(), key=lambda path: path.count("/")):
        if not any(path.startswith(f"{above}/") for above in shadowed):
            found[path] = _expected_of(mine.get(path), theirs.get(path), deletes)
            if found[path] in (Kind.SKIP, Kind.CONFLICT):
                shadowed.append(path)
    return found


def _expected_of(mine: TreeEntry | None, theirs: TreeEntry | None, deletes: Deletes) -> Kind:
    if mine is None:
        assert theirs is not None
        if deletes is Deletes.OFF or theirs.kind is EntryKind.DIRECTORY:
            return Kind.EXTRA
        return Kind.DELETE if theirs.kind is EntryKind.FILE else Kind.CONFLICT
    if mine.kind is EntryKind.LINK:
        return Kind.SKIP
    if theirs is None:
        return Kind.CREATE
    if mine.kind is not theirs.kind:
        return Kind.CONFLICT
    return Kind.SAME if mine.kind is EntryKind.DIRECTORY or mine.identity == theirs.identity else Kind.UPDATE


def flattened(found: Sequence[Difference]) -> list[tuple[str, Kind]]:
    paths: list[tuple[str, Kind]] = []
    for each in found:
        kind = Kind.CREATE if each.kind in (Kind.CREATE_TREE, Kind.ENSURE_DIRECTORY) else each.kind
        paths.append((each.path, kind))
        paths += [(below.path, Kind.CREATE) for below in each.below]
    return paths


@given(trees(), trees(), st.sampled_from(Deletes), st.integers(1, 4), st.booleans())
def test_every_path_is_given_once_as_a_dictionary_would_say(
    source: list[TreeEntry], destination: list[TreeEntry], deletes: Deletes, largest: int, ignores_case: bool
) -> None:
    rules = DifferenceRules(
        deletes=deletes,
        is_ours=lambda _entry: True,
        empty_source=True,
        links=LinkPolicy.SKIP,
        ignores_case=ignores_case,
        new_tree_entries_max=largest,
    )
    found = list(compare_trees(source, destination, rules))
    flat = flattened(found)
    assert len(flat) == len(dict(flat))
    assert dict(flat) == expected(source, destination, deletes)
    places = {path: place for place, (path, _kind) in enumerate(flat)}
    for path, kind in flat:
        parent = path.rpartition("/")[0]
        assert not parent or kind is Kind.SKIP or places[parent] < places[path]


@given(trees(), st.integers(1, 4))
def test_a_new_directory_is_whole_exactly_when_it_is_small_enough(source: list[TreeEntry], largest: int) -> None:
    rules = DifferenceRules(links=LinkPolicy.SKIP, new_tree_entries_max=largest)
    found = list(compare_trees(source, [], rules))
    by_path = {each.path: each for each in found}
    for each in found:
        if each.source is None or each.source.kind is not EntryKind.DIRECTORY:
            continue
        below = [entry for entry in source if entry.path.startswith(f"{each.path}/")]
        assert (each.kind is Kind.CREATE_TREE) == (len(below) <= largest)
        if each.kind is Kind.CREATE_TREE:
            assert list(each.below) == [entry for entry in below if entry.kind is not EntryKind.LINK]
        parent = each.path.rpartition("/")[0]
        assert not parent or by_path[parent].kind is Kind.ENSURE_DIRECTORY


# --- why


@pytest.mark.parametrize(
    ("mine", "theirs", "kind", "why"),
    [
        (file_entry("f", 12), file_entry("f", 10), Kind.UPDATE, "length 10 became 12"),
        (file_entry("f", mtime_ns=4 * S_NS), file_entry("f"), Kind.UPDATE, "is newer by 3 s"),
        (
            file_entry("f"),
            file_entry("f", mtime_ns=S_NS + 1_500_000),
            Kind.UPDATE,
            "the destination's is newer by 1.5 ms: both sides shall be equal",
        ),
        (file_entry("f"), file_entry("f"), Kind.SAME, "length and modification time are the same"),
        (
            file_entry("f"),
            file_entry("f", mtime_ns=None),
            Kind.UPDATE,
            "the destination keeps no modification time to compare",
        ),
        (file_entry("f"), link_entry("f"), Kind.CONFLICT, "is a file in the source and a link at the destination"),
        (directory_entry("f"), directory_entry("f"), Kind.SAME, "is there"),
    ],
)
def test_the_reason_says_what_differs(mine: TreeEntry, theirs: TreeEntry, kind: Kind, why: str) -> None:
    assert shown(differences([mine], [theirs])) == [(kind.value, "f", why)]


def test_a_file_and_a_directory_of_one_name_are_a_conflict_and_what_is_below_is_left_alone() -> None:
    rules = DifferenceRules(deletes=Deletes.ALL)
    between = ["a-b", "a.d/x"]  # in byte order, they stand between the file a and the directory a
    assert shown(differences(["a", "a-b", "z"], ["a/x", "a/y/z", *between], rules)) == [
        ("same", "a-b", "length and modification time are the same"),
        ("extra", "a.d", "directories are left"),
        ("delete", "a.d/x", "the source lacks it"),
        ("conflict", "a", "is a file in the source and a directory at the destination"),
        ("create", "z", "is new"),
    ]
    assert shown(differences(["a/x", "a/y/z", "a-b"], ["a", "a-b"], rules)) == [
        ("same", "a-b", "length and modification time are the same"),
        ("conflict", "a", "is a directory in the source and a file at the destination"),
    ]


# --- new directories


def test_a_new_directory_is_one_difference_with_its_files_and_subdirectories() -> None:
    (found,) = differences(["d/a", "d/e/f", directory_entry("d/empty")], [])
    assert (found.kind, found.path, found.source) == (Kind.CREATE_TREE, "d", directory_entry("d"))
    assert [entry.path for entry in found.below] == ["d/a", "d/e", "d/e/f", "d/empty"]


def test_a_large_new_directory_comes_in_parts() -> None:
    rules = DifferenceRules(new_tree_entries_max=3)
    found = differences(["d/a", "d/e/1", "d/e/2", "d/f/1", "d/f/2", "d/f/3", "d/f/4", "d/g"], [], rules)
    assert [(each.kind.value, each.path, len(each.below)) for each in found] == [
        ("ensure_directory", "d", 0),
        ("create", "d/a", 0),
        ("create_tree", "d/e", 2),
        ("ensure_directory", "d/f", 0),
        ("create", "d/f/1", 0),
        ("create", "d/f/2", 0),
        ("create", "d/f/3", 0),
        ("create", "d/f/4", 0),
        ("create", "d/g", 0),
    ]


def test_a_new_directory_with_a_file_that_several_writers_fill_comes_in_parts() -> None:
    rules = DifferenceRules(new_tree_file_bytes_max=10)
    large = file_entry("d/e/large", size_bytes=11)
    found = differences(["d/a", large, "d/f/1", file_entry("d/f/2", size_bytes=10)], [], rules)
    assert [(each.kind.value, each.path, len(each.below)) for each in found] == [
        ("ensure_directory", "d", 0),
        ("create", "d/a", 0),
        ("ensure_directory", "d/e", 0),
        ("create", "d/e/large", 0),
        ("create_tree", "d/f", 2),
    ]


def test_links_in_a_new_directory_are_said_and_left_out() -> None:
    found = differences([link_entry("d/l"), "d/f"], [], DifferenceRules(links=LinkPolicy.SKIP))
    assert [(each.kind.value, each.path) for each in found] == [("skip", "d/l"), ("create_tree", "d")]
    assert [entry.path for entry in found[1].below] == ["d/f"]


# --- deletes


def test_only_what_the_job_published_is_deleted() -> None:
    rules = DifferenceRules(deletes=Deletes.OURS, is_ours=lambda entry: entry.path.startswith("ours"))
    found = differences(["kept"], ["kept", "ours", "theirs", link_entry("ours-link"), link_entry("their-link")], rules)
    assert {each.path: each.kind for each in found} == {
        "kept": Kind.SAME,
        "ours": Kind.DELETE,
        "theirs": Kind.EXTRA,
        "ours-link": Kind.CONFLICT,
        "their-link": Kind.EXTRA,
    }


@pytest.mark.parametrize("kind", [EntryKind.LINK, EntryKind.SPECIAL])
def test_links_and_special_files_of_the_destination_are_never_deleted(kind: EntryKind) -> None:
    found = differences(["f"], ["f", link_entry("l", kind)], DifferenceRules(deletes=Deletes.ALL))
    assert found[1].kind is Kind.CONFLICT
    assert "is never deleted" in found[1].why


@pytest.mark.parametrize(
    "source", [[], [directory_entry("empty")], [link_entry("l")], [link_entry("socket", EntryKind.SPECIAL)]]
)
def test_nothing_is_deleted_because_the_source_has_no_file(source: list[TreeEntry]) -> None:
    with pytest.raises(RejectedError, match="the source has no file") as refused:
        differences(source, ["a", "b"], DifferenceRules(deletes=Deletes.ALL, links=LinkPolicy.SKIP))
    assert (refused.value.field, bool(refused.value.hint)) == ("deletes", True)
    assert differences(source, ["x"], DifferenceRules(links=LinkPolicy.SKIP))[-1].kind is Kind.EXTRA


def test_a_directory_that_is_left_empty_is_named_with_what_it_lost() -> None:
    source = [directory_entry("d"), directory_entry("e"), "e/kept", "k"]
    destination = [
        *(directory_entry("d"), "d/a", directory_entry("d/below"), "d/below/b"),
        *(directory_entry("e"), "e/gone", "e/kept", directory_entry("f"), "f/a", "k"),
    ]
    asked = []

    def is_empty_directory(path: str) -> bool:
        asked.append(path)
        return path == "f"

    def lost(rules: DifferenceRules) -> dict[str, str | None]:
        found = differences(source, destination, rules)
        return {each.path: each.lost_with for each in found if each.kind is Kind.DELETE}

    found = lost(DifferenceRules(deletes=Deletes.ALL, is_empty_directory=is_empty_directory))
    assert found == {"d/a": "d", "d/below/b": "d", "e/gone": None, "f/a": "f"}
    assert asked == ["f"]
    # A directory whose files were not listed again gives nothing either.
    assert lost(DifferenceRules(deletes=Deletes.ALL, skipped={"d"}))["d/a"] is None


def test_a_listing_that_fails_ends_the_stream_before_its_end() -> None:
    def broken() -> Iterator[TreeEntry]:
        yield file_entry("a")
        raise RetryableError("the server is gone")

    found = compare_trees(broken(), listing("a", "b", "c"), DifferenceRules(deletes=Deletes.ALL))
    with pytest.raises(RetryableError):
        list(found)


# --- names


@pytest.mark.parametrize(
    ("source", "destination"),
    [(["d/A", "d/a"], []), (["D/x", "d/y"], []), (["d/a"], ["d/A"]), (["STRASSE", "Straße"], [])],
)
def test_names_that_differ_by_case_are_refused_where_the_destination_ignores_case(
    source: list[str], destination: list[str]
) -> None:
    assert differences(source, destination)
    with pytest.raises(RejectedError, match="differ by case only"):
        differences(source, destination, DifferenceRules(ignores_case=True))


def test_names_of_different_directories_may_differ_by_case() -> None:
    assert differences(["a/X", "b/x", "c"], ["a/X", "b/x"], DifferenceRules(ignores_case=True))


@pytest.mark.parametrize("between", [[], ["a!", "a-/x", "a."]])
def test_a_file_that_is_also_a_directory_is_refused(between: list[str]) -> None:
    with pytest.raises(RejectedError, match="'a' is the name of a file, and of a directory") as refused:
        differences(["a", "a/b", *between], [])
    assert refused.value.field == "source"


def test_a_listing_out_of_order_is_never_believed() -> None:
    for wrong in (["b", "a"], ["a", "a"]):
        with pytest.raises(ConflictError, match="the listing of the destination"):
            list(compare_trees([], [file_entry(path) for path in wrong], DifferenceRules()))


# --- links of the source


@pytest.mark.parametrize("kind", [EntryKind.LINK, EntryKind.SPECIAL])
@pytest.mark.parametrize("path", ["x", "new/x"])
def test_links_and_special_files_are_refused_unless_they_are_skipped(kind: EntryKind, path: str) -> None:
    entry = link_entry(path, kind)
    for links in (LinkPolicy.FAIL, LinkPolicy.FOLLOW):
        with pytest.raises(RejectedError, match=r"in the source") as refused:
            differences([entry], [], DifferenceRules(links=links))
        assert refused.value.field == "links"
    assert differences([entry], [], DifferenceRules(links=LinkPolicy.SKIP))[0].kind is Kind.SKIP


def test_what_is_at_the_place_of_a_skipped_link_is_not_extra() -> None:
    rules = DifferenceRules(links=LinkPolicy.SKIP, deletes=Deletes.ALL)
    for destination in (["l"], ["l/x", "l/y"]):
        found = differences([link_entry("l"), "k"], ["k", *destination], rules)
        assert {each.path: each.kind for each in found} == {"k": Kind.SAME, "l": Kind.SKIP}


# --- attributes and rules


def test_the_rule_is_passed_on() -> None:
    asked: list[str] = []

    def agree(mine: TreeEntry, _theirs: TreeEntry) -> bool:
        asked.append(mine.path)
        return mine.path == "same"

    sameness = Sameness(SameRule.CHECKSUM, checksums_agree=agree)
    other_time: Mapping[str, TreeEntry] = {
        path: replace(file_entry(path), identity=file_entry(path, mtime_ns=9).identity) for path in ("same", "other")
    }
    found = differences(
        ["same", "other", "longer"],
        [*other_time.values(), file_entry("longer", 2)],
        DifferenceRules(sameness=sameness),
    )
    assert [(each.path, each.why) for each in found] == [
        ("longer", "length 2 became 1"),
        ("other", "checksum differs"),
        ("same", "length and checksum are the same"),
    ]
    assert asked == ["other", "same"]
