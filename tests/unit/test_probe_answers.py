"""Answers of probes have a bounded size, and say what was cut out of them."""

import json

from gobblin_assets.tickets.probe_answers import ANSWER_BYTES_MAX, TEXT_CHARACTERS_MAX, bound_answer


def test_a_small_answer_stays_as_it_is() -> None:
    assert bound_answer({"tables": ["a", "b"], "rows": 7}) == {"tables": ["a", "b"], "rows": 7, "cut": {}}


def test_the_longest_lists_lose_their_ends() -> None:
    bounded = bound_answer({"changes": [f"é{number:06}" for number in range(100_000)], "units": ["x"] * 9, "rows": 7})
    assert len(json.dumps(bounded)) <= ANSWER_BYTES_MAX
    assert len(bounded["changes"]) > 5_000
    assert bounded["changes"][0] == "é000000"
    assert (bounded["cut"], len(bounded["units"])) == ({"changes": 100_000}, 9)


def test_no_text_is_long() -> None:
    bounded = bound_answer({"notes": [{"said": "x" * 300_000}]})
    assert len(bounded["notes"][0]["said"]) == TEXT_CHARACTERS_MAX + 1


def test_comments_go_before_columns() -> None:
    columns = [{"name": f"c{number}", "comment": "ж" * 400} for number in range(500)]
    bounded = bound_answer({"tables": [{"table": "orders", "comment": "all", "columns": columns}]})
    assert bounded["cut"] == {}
    (table,) = bounded["tables"]
    assert table["columns"][499] == {"name": "c499", "comment": ""}


def test_what_is_too_large_without_lists_has_an_end() -> None:
    bounded = bound_answer({**{f"note {number}": "x" * 1_000 for number in range(400)}, "tables": ["a"]})
    assert bounded["tables"] == []
