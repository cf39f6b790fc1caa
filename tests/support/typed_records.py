"""Records of JSON with a column of each type, among them numbers that JSON lacks; and the rows that they become."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from tests.support.spark import wait_until

TYPED_COLUMNS = (
    "n bigint, b boolean, f float, d double, e decimal(9,2), s string, t timestamp, l timestamp_ntz, day date,"
    " a array<double>"
)
ODD = ("NaN", "Infinity", "-Infinity", -0.0, 1.5, None)

TypedRows = Counter[str]


def make_typed_record(n: int) -> bytes:
    """Of each type what is common and what is rare. Some fields are left out."""
    odd = ODD[n % len(ODD)]
    fields = {
        "n": n,
        "b": n % 2 == 0,
        "f": odd,
        "d": ODD[(n + 1) % len(ODD)],
        "e": f"{n}.25",
        "s": f'"{n}" \n\u00e9 NaN',
        "t": f"2026-01-02T03:04:{n % 60:02}.000001Z",
        "l": f"2026-01-02T03:04:{n % 60:02}",
        "day": "0099-12-31",
        "a": [odd, None, 0.1],
    }
    return json.dumps(fields if n % 7 else {"n": n}).encode()


def make_typed_row(n: int) -> dict[str, Any]:
    """The record as rows have it."""
    if n % 7 == 0:
        return {**dict.fromkeys(list_typed_names()), "n": n}
    odd, other = (None if each is None else float(each) for each in (ODD[n % len(ODD)], ODD[(n + 1) % len(ODD)]))
    local = dt.datetime(2026, 1, 2, 3, 4, n % 60)  # noqa: DTZ001  a time without a zone
    moment = local.replace(microsecond=1, tzinfo=dt.UTC)
    return {
        "n": n,
        "b": n % 2 == 0,
        "f": odd,
        "d": other,
        "e": Decimal(f"{n}.25"),
        "s": f'"{n}" \n\u00e9 NaN',
        "t": moment,
        "l": local,
        "day": dt.date(99, 12, 31),
        "a": [odd, None, 0.1],
    }


def count_typed_rows(rows: Sequence[Mapping[str, Any]]) -> TypedRows:
    """As a multiset. NaN is not itself, but its text is."""
    return Counter(
        repr([value.astimezone(dt.UTC) if name == "t" and value else value for name, value in sorted(row.items())])
        for row in rows
    )


def expect_typed_rows(count: int) -> TypedRows:
    return count_typed_rows([make_typed_row(n) for n in range(count)])


def await_typed_rows(read: Callable[[], TypedRows], count: int, say: Callable[[], str]) -> None:
    """Until there are the rows of so many records, each once. ``say``: what a failure shows."""
    wanted = expect_typed_rows(count)

    def look() -> bool:
        found = read()
        assert not found - wanted, "a row comes twice, or is another one"
        return found == wanted

    wait_until(look, lambda: f"{count} rows, found {read().total()}; {say()}", progress=lambda: read().total())


def list_typed_names() -> list[str]:
    """Of the columns."""
    return [each.split()[0] for each in TYPED_COLUMNS.split(", ")]
