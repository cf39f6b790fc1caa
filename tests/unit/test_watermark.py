"""Positions: their bytes, which the ledger's constraint compares, have exactly the positions' order."""

import datetime as dt
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.model.watermark import (
    Watermark,
    WatermarkType,
    from_micros,
    parse_position,
    parse_watermark,
    to_micros,
)

LONGS = st.integers(-(2**63), 2**63 - 1)
# Few letters, so that prefixes and NULs occur often.
TEXTS = st.one_of(st.text(alphabet="\x00\x01a\xff\U0001f600", max_size=6), st.text(max_size=8))
WALL = dt.datetime(2013, 1, 1)  # noqa: DTZ001  a wall-clock time is what is tested
INSTANTS = st.datetimes(timezones=st.just(dt.UTC))


def of(kind: WatermarkType, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Watermark]:
    return values.map(lambda value: Watermark(kind, value))


BY_TYPE = {
    WatermarkType.LONG: of(WatermarkType.LONG, LONGS),
    WatermarkType.TIMESTAMP: of(WatermarkType.TIMESTAMP, INSTANTS),
    WatermarkType.LOCAL_TIMESTAMP: of(WatermarkType.LOCAL_TIMESTAMP, st.datetimes()),
    WatermarkType.DATE: of(WatermarkType.DATE, st.dates()),
    WatermarkType.STRING: of(WatermarkType.STRING, TEXTS),
}
BY_TYPE[WatermarkType.COMPOSITE] = st.one_of(
    *(
        of(WatermarkType.COMPOSITE, st.tuples(BY_TYPE[lead], BY_TYPE[tail]))
        for lead in (WatermarkType.TIMESTAMP, WatermarkType.LOCAL_TIMESTAMP)
        for tail in (WatermarkType.LONG, WatermarkType.STRING)
    )
)


def plain(position: Watermark) -> Any:
    """The value that Python itself compares: text by code points, tuples element by element."""
    if position.type is WatermarkType.COMPOSITE:
        return tuple(part.value for part in position.value if isinstance(part, Watermark))  # type: ignore[union-attr]  # a composite's value is a pair
    return position.value


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Watermark, Watermark]:
    kind = draw(st.sampled_from(list(WatermarkType)))
    first, second = draw(BY_TYPE[kind]), draw(BY_TYPE[kind])
    if kind is WatermarkType.COMPOSITE:
        shape = [part.type for part in first.value]  # type: ignore[union-attr]  # a composite's value is a pair
        second = draw(BY_TYPE[kind].filter(lambda w: [part.type for part in w.value] == shape))  # type: ignore[union-attr]  # the same
        if draw(st.booleans()):
            second = Watermark(kind, (first.value[0], second.value[1]))  # type: ignore[index]  # the same
    return first, second


def test_every_type_is_tried() -> None:
    assert BY_TYPE.keys() == set(WatermarkType)


@given(pairs())
def test_bytes_order_as_positions_do(pair: tuple[Watermark, Watermark]) -> None:
    first, second = pair
    assert (first.encode() < second.encode()) == (plain(first) < plain(second))
    assert (first.encode() == second.encode()) == (plain(first) == plain(second))
    assert (first < second) == (plain(first) < plain(second))


@given(st.sampled_from(list(WatermarkType)).flatmap(lambda kind: BY_TYPE[kind]))
def test_bytes_are_never_empty(position: Watermark) -> None:
    assert position.encode() > b""


@given(st.sampled_from(list(WatermarkType)).flatmap(lambda kind: BY_TYPE[kind]))
def test_json_gives_the_position_back(position: Watermark) -> None:
    assert parse_watermark(position.to_json()) == position


def test_the_position_behind_a_text_is_stored_without_the_nul_that_jsonb_refuses() -> None:
    behind = Watermark(WatermarkType.STRING, "abc").successor()

    assert "\\u0000" not in json.dumps(behind.to_json())
    assert parse_watermark(behind.to_json()) == behind


@given(LONGS.filter(lambda n: n < 2**63 - 1), st.text(alphabet="\x00ab", max_size=4))
def test_nothing_lies_between_a_position_and_its_successor(number: int, text: str) -> None:
    assert Watermark(WatermarkType.LONG, number).successor().value == number + 1
    position = Watermark(WatermarkType.STRING, text)
    after = position.successor()
    assert position < after
    for other in ("", "\x00", "a", "\x00\x00", text + "\x00\x00", text + "a", text[:-1]):
        assert not position < Watermark(WatermarkType.STRING, other) < after


@given(st.datetimes(max_value=WALL), LONGS.filter(lambda n: n < 2**63 - 1))
def test_a_composites_successor_stays_at_its_time(moment: dt.datetime, key: int) -> None:
    lead = Watermark(WatermarkType.LOCAL_TIMESTAMP, moment)
    pair = Watermark(WatermarkType.COMPOSITE, (lead, Watermark(WatermarkType.LONG, key)))
    after = Watermark(WatermarkType.COMPOSITE, (lead, Watermark(WatermarkType.LONG, key + 1)))
    assert pair.successor() == after
    assert lead < lead.successor()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (WatermarkType.LONG, 2**63 - 1),
        (WatermarkType.TIMESTAMP, dt.datetime.max.replace(tzinfo=dt.UTC)),
        (WatermarkType.LOCAL_TIMESTAMP, dt.datetime.max),  # noqa: DTZ901  the last wall-clock time
        (WatermarkType.DATE, dt.date.max),
    ],
)
def test_the_last_position_of_a_type_is_its_own_successor(kind: WatermarkType, value: Any) -> None:
    position = Watermark(kind, value)
    assert position.successor() == position


@given(INSTANTS)
def test_microseconds_keep_an_instant_exactly(moment: dt.datetime) -> None:
    assert from_micros(to_micros(moment)) == moment
    assert from_micros(to_micros(moment), local=True) == moment.replace(tzinfo=None)


def test_positions_of_different_types_are_not_compared() -> None:
    with pytest.raises(RejectedError, match="can't be compared"):
        assert Watermark(WatermarkType.LONG, 1) < Watermark(WatermarkType.STRING, "1")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (WatermarkType.LONG, True),
        (WatermarkType.LONG, 2**63),
        (WatermarkType.TIMESTAMP, WALL),
        (WatermarkType.LOCAL_TIMESTAMP, dt.datetime(2013, 1, 1, tzinfo=dt.UTC)),
        (WatermarkType.DATE, WALL),
        (WatermarkType.STRING, 1),
        (WatermarkType.COMPOSITE, (Watermark(WatermarkType.STRING, "a"), Watermark(WatermarkType.LONG, 1))),
    ],
)
def test_a_value_of_another_type_is_refused(kind: WatermarkType, value: Any) -> None:
    with pytest.raises(RejectedError, match="is not a"):
        Watermark(kind, value)


@pytest.mark.parametrize(
    "stored", [None, {}, {"type": "long"}, {"type": "new", "value": 1}, {"type": "long", "value": "1"}]
)
def test_what_we_did_not_store_is_corruption(stored: object) -> None:
    with pytest.raises(CorruptionError):
        parse_watermark(stored)


def test_a_persons_position_is_read_or_refused_by_its_field() -> None:
    assert parse_position(WatermarkType.DATE, "2013-01-31", field="start").value == dt.date(2013, 1, 31)
    assert parse_position(WatermarkType.TIMESTAMP, "2013-01-31T05:00:00", field="s").value == dt.datetime(
        2013, 1, 31, 5, tzinfo=dt.UTC
    )
    with pytest.raises(RejectedError, match=r"watermark\.start.*2013-01-31"):
        parse_position(WatermarkType.DATE, "yesterday", field="watermark.start")
