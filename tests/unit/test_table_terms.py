"""What breaks a table's log, by what its catalogue had and has: a pure decision."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gobblin_assets.errors import CorruptionError
from gobblin_assets.sources.jdbc.names import TableName
from gobblin_assets.sources.postgres_log.table_terms import (
    TableTerms,
    TermsLook,
    find_break,
    parse_terms,
    read_terms,
    take_over,
    write_terms,
)

OWN, OTHER, UNDER = "table 30", "schema 31 700", "table 32 under 20 701"
TERMS = TableTerms(10, "1 700", frozenset({OWN}), None, frozenset({"11 11 5"}), {"40": "glad"}, width=3, file=10)


def look(**changes: Any) -> TermsLook:
    terms = replace(TERMS, **changes)
    return TermsLook(TableName("public", "t"), terms, frozenset(), frozenset({"a"}), False, is_partitioned=False)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"oid": 12}, "another table"),
        ({"members": frozenset({OTHER})}, "left the publication"),
        ({"members": frozenset[str]()}, "left the publication"),
        ({"row_filter": "(a > 1)"}, "WHERE (a > 1), and was WHERE true"),
        ({"parts": frozenset({"11 17 5"})}, "lost a partition"),
        ({"labels": {"40": "happy", "41": "sad"}}, "'glad' was renamed to 'happy'"),
    ],
    ids=["oid", "another entry", "no entry", "filter", "emptied part", "label"],
)
def test_whoever_may_lack_changes_is_told(changes: Mapping[str, Any], said: str) -> None:
    found = find_break(TERMS, look(**changes))
    assert found is not None
    assert said in found


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"members": frozenset({OWN, OTHER})},
        {"parts": frozenset({"11 11 5", "13 13 9"})},
        {"labels": {"40": "glad", "41": "sad"}},
        {"labels": dict[str, str]()},
        {"width": 4, "file": 19},
    ],
    ids=["nothing", "another entry besides", "an empty part", "a new label", "no enum any more", "a column"],
)
def test_whoever_lacks_nothing_goes_on(changes: Mapping[str, Any]) -> None:
    assert find_break(TERMS, look(**changes)) is None


def test_a_part_that_may_have_come_with_rows_breaks() -> None:
    now = replace(look(parts=frozenset({"11 11 5", "13 13 9"})), strangers=frozenset({"13 13 9", "11 11 5"}))
    assert "may have had rows" in str(find_break(TERMS, now))
    assert find_break(now.terms, now) is None


def test_an_entry_of_its_own_makes_that_of_its_root_idle() -> None:
    both = replace(TERMS, members=frozenset({OWN, UNDER}))
    assert find_break(both, look()) is None
    assert find_break(both, look(members=frozenset({UNDER}))) is not None
    assert find_break(replace(TERMS, members=frozenset({UNDER})), look(members=frozenset({OWN}))) is not None


def test_where_rows_are_kept_is_taken_over_only_with_the_columns_that_are_met() -> None:
    grown = look(width=4, file=19)
    assert take_over(TERMS, grown, is_met=False) == TERMS
    assert take_over(TERMS, grown, is_met=True) == grown.terms
    assert take_over(TERMS, look(file=19), is_met=False).file == 19


def test_terms_are_read_as_they_were_written() -> None:
    assert read_terms(write_terms(TERMS)) == TERMS
    assert read_terms({}) is None
    assert write_terms(None) == {}


@pytest.mark.parametrize("said", [None, 7, {}, {**TERMS.write(), "labels": []}, {**TERMS.write(), "oid": "x"}])
def test_other_facts_are_no_terms(said: object) -> None:
    with pytest.raises(CorruptionError):
        parse_terms(said)
