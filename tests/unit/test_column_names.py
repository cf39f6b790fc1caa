"""One rule says when two names are one column; ``tests/integration/test_column_names.py`` asks Spark itself."""

from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.model.column_names import find_alike, name_key, pair_names

ALIKE = ["iI\u0131İ", "sS\u017f", "kKK", "åÅÅ", "µμ\u039c", "\u03c3Σς", "ßẞ", "ǆǅǄ", "ᾳᾼ", "ꭰᎠ", "θϑΘϴ"]


def test_names_that_differ_by_case_in_any_of_sparks_ways_are_one() -> None:
    for letters in ALIKE:
        assert len({name_key(f"a{letter}b") for letter in letters}) == 1, letters
    assert name_key("İ") == name_key("i\u0307") == name_key("İ\u0307")


def test_names_that_only_casefold_takes_for_one_are_two() -> None:
    for one, other in [
        ("masse", "maße"),
        ("ss", "ß"),
        ("fi", "ﬁ"),
        ("é", "e\u0301"),
        ("i", "j"),
        ("ΐ", "\u03b9\u0308\u0301"),
    ]:
        assert name_key(one) != name_key(other)


def test_the_first_pair_of_names_that_are_one_is_found() -> None:
    assert find_alike(["a", "b", "A", "B"]) == ("a", "A")
    assert find_alike(["x", "s", "\u017f"]) == ("s", "\u017f")
    assert find_alike(["a", "a"]) == ("a", "a")
    assert find_alike(["masse", "maße", "ma\u1e9ee "]) is None


def test_a_name_is_itself_before_it_is_one_that_is_alike() -> None:
    assert pair_names(["s", "\u017f"], ["\u017f", "s"]) == {"s": "s", "\u017f": "\u017f"}
    assert pair_names(["S"], ["x", "s"]) == {"S": "s"}
    assert pair_names(["s"], ["\u017f", "s"]) == {"s": "s"}
    assert pair_names(["S", "s"], ["s", "x"]) == {"s": "s"}
    assert pair_names(["a"], ["b"]) == {}


@given(
    st.lists(st.sampled_from("iI\u0131İsS\u017fßxaA"), unique=True),
    st.lists(st.sampled_from("iI\u0131İsS\u017fßxaA"), unique=True),
)
def test_no_two_names_get_the_same_one(wanted: list[str], known: list[str]) -> None:
    pairs = pair_names(wanted, known)
    assert len(set(pairs.values())) == len(pairs)
    assert set(pairs.values()) <= set(known)
    assert all(name_key(name) == name_key(found) for name, found in pairs.items())
