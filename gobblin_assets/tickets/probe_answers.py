"""Answers of probes: plain JSON of a bounded size, with what was cut out of it."""

import json
from collections.abc import Mapping
from typing import Any, Final

ANSWER_BYTES_MAX: Final = 256 << 10
TEXT_CHARACTERS_MAX: Final = 1_000


def bound_answer(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer in at most ANSWER_BYTES_MAX bytes of JSON: comments go first, then the longest lists lose their ends.

    ``cut``: of each list that did, how many members it had.
    """
    bounded = {name: _bound_texts(value) for name, value in answer.items()}
    sizes = {name: _measure(value) for name, value in bounded.items()}
    if sum(sizes.values()) > ANSWER_BYTES_MAX:
        bounded = {name: _leave_out_comments(value) for name, value in bounded.items()}
        sizes = {name: _measure(value) for name, value in bounded.items()}
    cut: dict[str, int] = {}
    while sum(sizes.values()) > ANSWER_BYTES_MAX - _measure(cut):
        lists = {name: value for name, value in bounded.items() if isinstance(value, list) and value}
        if not lists:
            break
        name = max(lists, key=sizes.__getitem__)
        cut.setdefault(name, len(lists[name]))
        bounded[name] = lists[name][: len(lists[name]) // 2]
        sizes[name] = _measure(bounded[name])
    return {**bounded, "cut": cut}


def _measure(value: object) -> int:
    # As the log writes it, with what stands around a member of an object.
    return len(json.dumps(value, ensure_ascii=False).encode(errors="replace")) + 200


def _leave_out_comments(value: object) -> object:
    match value:
        case Mapping():
            return {name: "" if name == "comment" else _leave_out_comments(each) for name, each in value.items()}
        case list():
            return [_leave_out_comments(each) for each in value]
        case _:
            return value


def _bound_texts(value: object) -> object:
    match value:
        case str():
            return value if len(value) <= TEXT_CHARACTERS_MAX else f"{value[:TEXT_CHARACTERS_MAX]}…"
        case Mapping():
            return {name: _bound_texts(each) for name, each in value.items()}
        case list() | tuple():
            return [_bound_texts(each) for each in value]
        case _:
            return value
