"""Globs and filters against rclone's documented cases, and pruning against a search without any."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import EntryKind
from gobblin_assets.jobs.copy.globs import list_chosen, parse_filters, parse_glob
from tests.support.tree_entries import ListedTree, directory_entry, file_entry, with_parents

# From the tables and texts of rclone's document on filtering: glob, what it matches, what it does not match.
DOCUMENTED = [
    ("file.jpg", ["file.jpg", "directory/file.jpg"], ["afile.jpg", "directory/afile.jpg"]),
    ("/file.jpg", ["file.jpg"], ["afile.jpg", "directory/file.jpg"]),
    ("*.jpg", ["file.jpg", "dir/file.jpg"], ["file.png", "dir/file.png", "file.jpg/other.png"]),
    ("/*.jpg", ["file.jpg", "file2.jpg"], ["file.png", "dir/file.jpg"]),
    ("*.{jpg,png}", ["file.jpg", "dir/file.png"], ["file.gif", "dir/file.gif"]),
    ("dir/**", ["dir/anyfile", "subdir/dir/subsubdir/anyfile"], ["file.png", "subdir/file.png", "adir/file.jpg"]),
    ("*.t?t", ["file.txt", "dir/file.tzt"], ["file.qxt", "dir/file.png", "file.t/t"]),
    ("*.[a-z]", ["file.a", "dir/file.b"], ["file.0", "dir/file.1"]),
    (r"*.\?\?\?", ["file.???", "dir/file.???"], ["file.abc", "dir/file.def"]),
    (r"*.\d\d\d", ["file.012", "dir/file.345"], ["file.abc", "dir/file.def", "file.٠١٢"]),
    ("potato", ["potato"], ["POTATO"]),
    ("l?ss", ["less", "lass"], ["floss"]),
    ("h[ae]llo", ["hello", "hallo"], ["hullo"]),
    ("{one,two}_potato", ["one_potato", "two_potato"], ["three_potato", "_potato"]),
    (r"\*.jpg", ["*.jpg"], ["a.jpg"]),
    (r"\\.jpg", ["\\.jpg"], [".jpg"]),
    (r"\[one\].jpg", ["[one].jpg"], ["o.jpg"]),
    (r"*\[{JP,KR,HK}\]*", ["a[JP]b", "d/[HK]"], ["JP", "[XX]"]),
    ("potat[[:alpha:]]or", ["potatoor"], ["potat1or", "potator"]),
    ("'.' '+' '(' ')' '|' '^' '$'", ["'.' '+' '(' ')' '|' '^' '$'"], ["'x' '+' '(' ')' '|' '^' '$'"]),
    ("potato**sausage", ["potato/x/sausage", "d/potatosausage"], ["potato/x/sausages"]),
    ("potato,sausage", ["potato,sausage"], ["potato"]),
    (r"[\[\]]", ["[", "d/]"], ["\\"]),
    (".*{,/**}", [".git", ".git/a/b", "x/.y/z"], ["git/a"]),
]

OTHERS = [
    ("[!a]b", ["bb", "d/cb"], ["ab", "d/b"]),
    ("[^a]b", ["bb"], ["ab"]),
    (r"x[\D]y", ["xay"], ["x1y", "x/y"]),
    (r"x\Dy", ["xay"], ["x1y", "x/y"]),
    ("[a-]", ["a", "-"], ["b"]),
    ("[-a]", ["a", "-"], ["b"]),
    (r"[a\-c]", ["a", "-", "c"], ["b"]),
    ("[&&~~||[]", ["&", "~", "|", "["], ["a"]),
    ("a{b,c{d,/e}}f", ["abf", "acdf", "ac/ef"], ["acf", "abcdf"]),
    ("*", ["a", "d/e", "new\nline"], []),
    ("/a/**/b", ["a/x/b", "a/x/y/b"], ["a/b", "c/a/x/b"]),
    ("é?", ["éa", "d/é🐍"], ["é"]),
]


@pytest.mark.parametrize(("glob", "matched", "others"), DOCUMENTED + OTHERS)
def test_a_glob_matches_as_documented(glob: str, matched: list[str], others: list[str]) -> None:
    parsed = parse_glob(glob, field="x")
    assert [path for path in matched + others if parsed.matches(path)] == matched


@pytest.mark.parametrize(
    ("glob", "said"),
    [
        ("", "it is empty"),
        ("***", "more than two stars"),
        ("a***b", "more than two stars"),
        ("ab]c", "] has no beginning"),
        ("ab[c", "a [ has no ]"),
        ("[]", "a class has no characters"),
        ("[!]", "a class has no characters"),
        ("ab}c", "} has no beginning"),
        ("ab{}}cd", "} has no beginning"),
        ("ab{c", "a { has no }"),
        ("{a,{b}", "a { has no }"),
        ("ab{{cd}}", "regular expressions"),
        ("[a--b]", "ends before it begins"),
        ("[z-a]", "ends before it begins"),
        ("a\\", "a backslash ends it"),
        ("[a\\", "a backslash ends it"),
        ("[[:cat:]]", "found cat"),
        ("a//b", "two slashes"),
        ("\ud800", "no valid Unicode"),
    ],
)
def test_a_glob_that_means_nothing_is_refused_by_its_rule(glob: str, said: str) -> None:
    with pytest.raises(RejectedError) as refused:
        parse_filters(exclude=["fine", glob])
    assert refused.value.field == "exclude[1]"
    assert said in refused.value.message
    assert ascii(glob) in refused.value.message


# --- rules in order


def test_the_first_rule_that_matches_decides() -> None:
    filters = parse_filters(
        filters=["- /file1.jpg", "+ /file2.png", "+ /*.jpg", "- /*.png", "- /potato", "+ /sausage1", "+ /sausage2*",
                 "+ /sausage3**", "+ /a/*.jpg", "- *"]
    )  # fmt: skip
    chosen = {
        "file1.jpg": False, "file2.png": True, "FILE2.png": False, "afile2.png": False, "file3.jpg": True,
        "file4.png": False, "potato": False, "sausage1": True, "sausage1/potato": False, "sausage2potato": True,
        "sausage2/potato": False, "sausage3/potato": True, "a/one.jpg": True, "a/one.png": False, "unicorn": False,
    }  # fmt: skip
    assert {path: filters.chooses(path) for path in chosen} == chosen
    descended = {
        "sausage1": False, "sausage2": False, "sausage2/sub": False, "sausage2/sub/dir": False, "sausage3": True,
        "SAUSAGE3": False, "sausage3/sub": True, "sausage3/sub/dir": True, "sausage4": False, "a": True, "a/b": False,
    }  # fmt: skip
    assert {path: filters.descends(path) for path in descended} == descended


def test_an_excluded_directory_loses_all_that_is_below() -> None:
    filters = parse_filters(filters=["- /dir1/", "- /dir2/", "+ *.pdf", "- **"])
    paths = ["dir1/a.pdf", "dir2/x/b.pdf", "c.pdf", "x/d.pdf", "x/dir1/e.pdf", "f.txt"]
    assert [path for path in paths if filters.chooses(path)] == ["c.pdf", "x/d.pdf", "x/dir1/e.pdf"]
    assert [path for path in ["dir1", "dir1/x", "dir2", "x", "x/dir1"] if filters.descends(path)] == ["x", "x/dir1"]


def test_an_included_directory_chooses_no_file() -> None:
    filters = parse_filters(include=["/directory/"])
    assert not filters.chooses("directory/file")
    assert [path for path in ["directory", "other"] if filters.descends(path)] == ["directory"]


def test_includes_leave_out_all_else_and_excludes_do_not() -> None:
    included, excluded = parse_filters(include=["*.jpg"]), parse_filters(exclude=["*.jpg"])
    assert [included.chooses(path) for path in ("a.jpg", "b.png")] == [True, False]
    assert [excluded.chooses(path) for path in ("a.jpg", "b.png")] == [False, True]
    assert parse_filters().chooses("x")
    assert parse_filters().descends("x")


@pytest.mark.parametrize("glob", ["*", "**", "/**", "x/", "x/**", "x{,/**}", "{x,y}/**", "*/*"])
def test_an_excluded_directory_is_not_descended_into(glob: str) -> None:
    assert parse_filters(exclude=[glob]).descends("x") == (glob == "*/*")


@pytest.mark.parametrize(
    ("glob", "descended"),
    [
        ("/a/*/c.jpg", ["a", "a/x"]),
        ("/a/**/c.jpg", ["a", "a/x", "a/x/y"]),
        ("/{a/x,b}/c.jpg", ["a", "a/x", "a/x/y", "b", "b/x"]),
        ("/{a,b}/c.jpg", ["a", "b"]),
        ("/b**", ["b", "b/x"]),
        ("c.jpg", ["a", "a/x", "a/x/y", "b", "b/x"]),
    ],
)
def test_includes_bound_to_the_root_send_listings_only_where_they_may_match(glob: str, descended: list[str]) -> None:
    filters = parse_filters(include=[glob])
    assert [path for path in ["a", "a/x", "a/x/y", "b", "b/x"] if filters.descends(path)] == descended


@pytest.mark.parametrize("rule", ["*.tmp", "+*.tmp", "! ", "", "+", "+ ", "#"])
def test_a_rule_begins_with_its_sign(rule: str) -> None:
    with pytest.raises(RejectedError) as refused:
        parse_filters(filters=["- x", rule, "+ y"])
    assert refused.value.field == "filters[1]"


def test_kinds_of_rules_are_not_mixed() -> None:
    with pytest.raises(RejectedError, match="found include and exclude") as refused:
        parse_filters(include=["a"], exclude=["b"])
    assert "filters" in refused.value.hint


# --- pruning


NAMES = st.sampled_from(["a", "b", "ab", "a.b", ".a"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
PIECES = st.sampled_from(
    ["a", "b", "*", "**", "?", "[ab]", "[!a]", "/", "/", ".", "{a,b}", "{a/,*}", "{,/**}", "{**,?}"]
)
GLOBS = (
    st.tuples(st.sampled_from(["", "/"]), st.lists(PIECES, min_size=1, max_size=5).map("".join))
    .map("".join)
    .filter(lambda glob: "//" not in glob and "***" not in glob)
)
SIGNED = st.tuples(st.sampled_from(["+ ", "- "]), GLOBS).map("".join)


@given(st.lists(SIGNED, min_size=1, max_size=4), st.sets(PATHS, min_size=1, max_size=12), st.booleans())
def test_pruning_never_changes_what_is_chosen(rules: list[str], paths: set[str], bare: bool) -> None:
    filters = parse_filters(filters=rules)
    files = {path for path in paths if not any(other.startswith(f"{path}/") for other in paths)}
    entries = with_parents(file_entry(path) for path in files)
    found = list(list_chosen(ListedTree(entries), "root", filters, bare_directories=bare))
    assert found == [entry for entry in entries if entry in found]
    chosen = {entry.path for entry in found if entry.kind is EntryKind.FILE}
    assert chosen == {path for path in files if filters.chooses(path)}
    directories = {entry.path for entry in found if entry.kind is EntryKind.DIRECTORY}
    on_the_way = {path[:n] for path in chosen for n, letter in enumerate(path) if letter == "/"}
    assert on_the_way <= directories
    assert bare or on_the_way == directories


def test_directories_without_a_chosen_file_are_given_where_they_must_be() -> None:
    entries = with_parents([file_entry("d/e/f.txt"), directory_entry("empty"), file_entry("x/y.jpg")])
    filters = parse_filters(include=["*.jpg"])
    source = [entry.path for entry in list_chosen(ListedTree(entries), "r", filters, bare_directories=False)]
    destination = [entry.path for entry in list_chosen(ListedTree(entries), "r", filters, bare_directories=True)]
    assert source == ["x", "x/y.jpg"]
    assert destination == ["d", "d/e", "empty", "x", "x/y.jpg"]
