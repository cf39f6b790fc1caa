"""A made-up shop's page views, the same for the same seed: the views, their times, and their faults.

Views come in rounds of two days each. Some come days late, some twice, and some records are broken. This module knows
nothing of brokers.
"""

import datetime as dt
import io
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

import fastavro

SEED: Final = 20250602
START: Final = dt.datetime(2025, 6, 2, tzinfo=dt.UTC)
ROUND: Final = dt.timedelta(days=2)

VISITORS: Final = 500
"""Some pages are viewed far more often than others, so that one key has many records."""

BROKEN_EVERY: Final = 60
LATE_EVERY: Final = 12
TWICE_EVERY: Final = 25

_PAGES: Final = ("/", "/search", "/cart", "/checkout", *(f"/product/{number}" for number in range(1, 41)))
_REFERRERS: Final = (None, "search", "newsletter", "friends")

_FIELDS: Final = (
    {"name": "view_id", "type": "string"},
    {"name": "page", "type": "string"},
    {"name": "viewed_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
)
SCHEMAS: Final[tuple[dict[str, Any], ...]] = (
    {"type": "record", "name": "View", "namespace": "shop", "fields": [*_FIELDS]},
    {
        "type": "record",
        "name": "View",
        "namespace": "shop",
        "fields": [*_FIELDS, {"name": "referrer", "type": ["null", "string"], "default": None}],
    },
)
"""The versions of the web site's schema, oldest first."""

_PARSED: Final = tuple(fastavro.parse_schema(schema) for schema in SCHEMAS)


class Fault(StrEnum):
    """A record's fault, as its producer would name it."""

    CUT = "cut off in the middle"
    ERROR_PAGE = "an error page instead of a view"
    NO_TIME = "says no time"
    CLOCK = "a clock 100 years ahead"


WEB_FAULTS: Final = (Fault.CUT, Fault.ERROR_PAGE, Fault.CLOCK)
APP_FAULTS: Final = (Fault.CUT, Fault.ERROR_PAGE, Fault.NO_TIME)


@dataclass(frozen=True, slots=True)
class View:
    """``fault`` is the fault of its record, if any."""

    view_id: str
    visitor: str
    page: str
    viewed_at: dt.datetime
    referrer: str | None
    is_late: bool = False
    is_again: bool = False
    fault: Fault | None = None


def make_views(topic: str, number: int, count: int, faults: tuple[Fault, ...]) -> Iterator[View]:
    """The views of round ``number`` in the order in which they are sent: ``count`` views, and repeats of some."""
    draw = random.Random(f"{SEED}/{topic}/{number}")  # noqa: S311  made-up data, not a secret
    begin = START + number * ROUND
    for n in range(count):
        view = View(
            view_id=f"{topic}-{number}-{n}",
            visitor=f"visitor-{int(draw.random() ** 2 * VISITORS)}",
            page=draw.choice(_PAGES),
            viewed_at=begin + ROUND * (n / count) + dt.timedelta(milliseconds=draw.randrange(1_000)),
            referrer=draw.choice(_REFERRERS),
        )
        if n % BROKEN_EVERY == BROKEN_EVERY - 1:
            yield replace(view, fault=faults[n // BROKEN_EVERY % len(faults)])
            continue
        if number > 0 and n % LATE_EVERY == 0:
            view = replace(view, viewed_at=view.viewed_at - dt.timedelta(days=draw.randint(1, 2)), is_late=True)
        yield view
        if n % TWICE_EVERY == 0:
            yield replace(view, is_again=True)


def to_avro(view: View, version: int, schema_id: int) -> bytes:
    """In Confluent's wire format by the schema ``SCHEMAS[version]``."""
    if view.fault is Fault.ERROR_PAGE:
        return _ERROR_PAGE
    viewed_at = view.viewed_at.replace(year=view.viewed_at.year + 100) if view.fault is Fault.CLOCK else view.viewed_at
    fields = {"view_id": view.view_id, "page": view.page, "viewed_at": viewed_at, "referrer": view.referrer}
    known = {field["name"] for field in SCHEMAS[version]["fields"]}
    body = io.BytesIO()
    fastavro.schemaless_writer(body, _PARSED[version], {name: fields[name] for name in known})
    written = body.getvalue()
    return b"\0" + schema_id.to_bytes(4, "big") + (written[: len(written) // 2] if view.fault is Fault.CUT else written)


def to_json(view: View) -> bytes:
    if view.fault is Fault.ERROR_PAGE:
        return _ERROR_PAGE
    fields = {"view_id": view.view_id, "page": view.page, "viewed_at": view.viewed_at.isoformat()}
    if view.fault is Fault.NO_TIME:
        del fields["viewed_at"]
    written = json.dumps(fields).encode()
    return written[: len(written) // 2] if view.fault is Fault.CUT else written


def from_avro(value: bytes, versions: dict[int, int]) -> dict[str, Any]:
    """The fields as they were written; ``versions`` are numbers of versions by schema id."""
    decoded = fastavro.schemaless_reader(
        io.BytesIO(value[5:]), _PARSED[versions[int.from_bytes(value[1:5], "big")]], None
    )
    return dict(decoded)  # type: ignore[arg-type]  # fastavro types every record as whatever Avro has


def from_json(value: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(value)
    if "viewed_at" in fields:
        fields["viewed_at"] = dt.datetime.fromisoformat(fields["viewed_at"])
    return fields


_ERROR_PAGE: Final = b"<html><title>502 Bad Gateway</title></html>"
