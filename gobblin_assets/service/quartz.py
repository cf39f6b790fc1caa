"""Translates cron expressions of Quartz, which have seconds and may have years, into those of five fields.

Quartz counts the days of a week from 1, which is Sunday. A range may go on behind the end of its field (``FRI-MON``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import RejectedError

_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_LAST_SECOND: Final = 59
_WEEKS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class _Part:
    """One field of an expression: its name, its least and its largest number, and the names of its numbers."""

    name: str
    first: int
    last: int
    names: tuple[str, ...] = ()


_MINUTE: Final = _Part("minute", 0, 59)
_HOUR: Final = _Part("hour", 0, 23)
_DAY: Final = _Part("day of the month", 1, 31)
_MONTH: Final = _Part("month", 1, 12, _MONTHS)
_WEEKDAY: Final = _Part("day of the week", 1, 7, _DAYS)
_YEAR: Final = _Part("year", 1970, 2099)


@dataclass(frozen=True, slots=True)
class QuartzTimes:
    """What an expression of Quartz says: ``cron`` of five fields, the second of the minute, and the years.

    ``years``: None for each year.
    """

    cron: str
    second: int
    years: frozenset[int] | None


def translate_quartz(fields: Sequence[str]) -> QuartzTimes:
    """``fields``: six, or seven with the years. RejectedError names what can't be said here, and the fix."""
    second, minute, hour, day, month, weekday, *years = (field.upper() for field in fields)
    if (day == "?") == (weekday == "?"):
        raise refuse_schedule(
            "expected ? as the day of the month or as the day of the week",
            "Write ? for the one that says nothing, such as 0 0 3 * * ? or 0 0 3 ? * MON.",
        )
    cron = (
        _translate(_MINUTE, minute),
        _translate(_HOUR, hour),
        _translate_day(day),
        _translate(_MONTH, month),
        _translate_weekday(weekday),
    )
    every_year = not years or years[0] == "*"
    return QuartzTimes(" ".join(cron), _read_second(second), None if every_year else frozenset(_list(_YEAR, years[0])))


def _read_second(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _LAST_SECOND:
        raise refuse_schedule(
            f"a flow starts at one second of a minute, found {text[:40]!a}", "Write 0 as the first field, the seconds."
        )
    return int(text)


def _translate_day(text: str) -> str:
    if text in {"?", "L", "LW"}:
        return "*" if text == "?" else text
    if "W" in text or "L" in text:
        raise refuse_schedule(
            f"the day of the month {text[:40]!a} can't be said here",
            "Write days by their numbers, L for the last day, or LW for the last day from Monday to Friday.",
        )
    return _translate(_DAY, text)


def _translate_weekday(text: str) -> str:
    if text == "?":
        return "*"
    if text == "*" or not ("#" in text or "L" in text):
        return _translate(_WEEKDAY, text, shift=-1)
    return ",".join(_translate_nth(term) for term in text.split(","))


def _translate_nth(text: str) -> str:
    if text == "L":
        return str(_WEEKDAY.last - 1)
    day, nth, number = text.partition("#")
    if nth:
        if number not in {str(each) for each in range(1, _WEEKS_MAX + 1)}:
            raise refuse_schedule(
                f"expected a week from 1 to {_WEEKS_MAX} behind #, found {text[:40]!a}", "Correct it."
            )
        return f"{_number(_WEEKDAY, day) - 1}#{number}"
    if text.endswith("L"):
        return f"{_number(_WEEKDAY, text[:-1]) - 1}L"
    return _translate(_WEEKDAY, text, shift=-1)


def _translate(part: _Part, text: str, shift: int = 0) -> str:
    """Of five fields. What comes at each step from the begin stays a star: clocks that change move it otherwise."""
    if text == "*":
        return text
    numbers = _list(part, text)
    step = numbers[1] - numbers[0] if len(numbers) > 1 and "/" in text else 0
    if shift == 0 and step and numbers == list(range(part.first, part.last + 1, step)):
        return f"*/{step}" if step > 1 else "*"
    return ",".join(str(number + shift) for number in numbers)


def _list(part: _Part, text: str) -> list[int]:
    return sorted({number for term in text.split(",") for number in _list_term(part, term)})


def _list_term(part: _Part, text: str) -> list[int]:
    span, has_step, step_text = text.partition("/")
    step = 1
    if has_step:
        if not step_text.isascii() or not step_text.isdigit() or int(step_text) < 1:
            raise refuse_schedule(
                f"{text[:40]!a} is no step of the {part.name}", "Write a number from 1 on behind the slash."
            )
        step = int(step_text)
    if span == "*" or (not span and has_step):
        return list(range(part.first, part.last + 1, step))
    begin, has_end, end = span.partition("-")
    first = _number(part, begin)
    if not has_end:
        return list(range(first, part.last + 1, step)) if has_step else [first]
    last, width = _number(part, end), part.last - part.first + 1
    if last < first:
        if part is _YEAR:
            raise refuse_schedule(f"{text[:40]!a} has no years", "Write the first year first.")
        last += width
    return [part.first + (number - part.first) % width for number in range(first, last + 1, step)]


def _number(part: _Part, text: str) -> int:
    if text in part.names:
        return part.first + part.names.index(text)
    if not text.isascii() or not text.isdigit() or not part.first <= int(text) <= part.last:
        names = f", or {', '.join(part.names)}" if part.names else ""
        raise refuse_schedule(
            f"expected a {part.name} from {part.first} to {part.last}{names}, found {text[:40]!a}", "Correct it."
        )
    return int(text)


def refuse_schedule(said: str, hint: str) -> RejectedError:
    return RejectedError(said, field="schedule", hint=hint)
