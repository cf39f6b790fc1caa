"""Messages of rows, taken apart column by column, against the same done message by message."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.errors import CorruptionError
from gobblin_assets.sources.postgres_log.pgoutput import OPS, RowTuples, parse_tuples
from tests.support.row_messages import OID, Cell, deleted, inserted, truncated, updated

WIDTH_MAX = 4


@dataclass(frozen=True)
class Expected:
    """One row: its op, its message, its step, the cells after filling."""

    op: str
    message: int
    step: int
    cells: tuple[Cell, ...]


def cells_of(width: int, *, can_lack: bool = False) -> st.SearchStrategy[tuple[Cell, ...]]:
    one: st.SearchStrategy[Cell] = st.one_of(st.none(), st.binary(max_size=5))
    return st.tuples(*[one | st.just(...) if can_lack else one] * width)


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[bytes], list[Expected]]:
    width = draw(st.integers(0, WIDTH_MAX))
    messages: list[bytes] = []
    rows: list[Expected] = []
    for kind in draw(st.lists(st.sampled_from(["i", "u", "uk", "uo", "d", "t"]), max_size=8)):
        number = len(messages)
        sent = draw(cells_of(width, can_lack=kind.startswith("u")))
        match kind:
            case "i":
                messages.append(inserted(*sent))
                rows.append(Expected("c", number, 0, sent))
            case "u":
                messages.append(updated(*sent))
                rows.append(Expected("u", number, 0, sent))
            case "d":
                messages.append(deleted(*sent, kind=draw(st.sampled_from([b"K", b"O"]))))
                rows.append(Expected("d", number, 0, sent))
            case "t":
                messages.append(truncated(*draw(st.sampled_from([[OID], [1, OID], [OID, 2, 3]]))))
                rows.append(Expected("t", number, 0, (None,) * width))
            case _:
                old = draw(cells_of(width))
                messages.append(updated(*sent, old=old, kind=b"K" if kind == "uk" else b"O"))
                filled = tuple(
                    before if now is ... and before is not None else now for before, now in zip(old, sent, strict=True)
                )
                rows += [Expected("b", number, 0, old), Expected("u", number, 1, filled)]
    return width, messages, rows


def describe(found: RowTuples, width: int) -> list[Expected]:
    count = len(found.ops)
    columns: list[list[Cell]] = []
    for number in range(width):
        lacking = found.unchanged(number)
        values = found.binaries(number).to_pylist()
        for place in range(count) if lacking is not None else ():
            if lacking is not None and lacking[place]:
                assert values[place] is None
                values[place] = ...
        columns.append(values)
    return [
        Expected(OPS[op], int(message), int(step), tuple(column[place] for column in columns))
        for place, (op, message, step) in enumerate(zip(found.ops, found.messages, found.steps, strict=True))
    ]


def parse(messages: Sequence[bytes], width: int) -> RowTuples:
    return parse_tuples(pa.array(messages, pa.binary()), OID, width)


class TestRows:
    @given(histories())
    def test_they_are_those_of_the_messages_one_by_one(self, history: tuple[int, list[bytes], list[Expected]]) -> None:
        width, messages, rows = history
        assert describe(parse(messages, width), width) == rows

    @given(histories(), st.integers(0, 3), st.integers(0, 8))
    def test_a_part_of_a_batch_is_read_by_itself(
        self, history: tuple[int, list[bytes], list[Expected]], begin: int, length: int
    ) -> None:
        width, messages, rows = history
        found = parse_tuples(pa.array(messages, pa.binary()).slice(begin, length), OID, width)
        kept = [row for row in rows if begin <= row.message < begin + length]
        assert [row.cells for row in describe(found, width)] == [row.cells for row in kept]


class TestDamage:
    @given(histories(), st.data())
    def test_a_message_that_ends_early_is_refused(
        self, history: tuple[int, list[bytes], list[Expected]], data: st.DataObject
    ) -> None:
        width, messages, _rows = history
        if not messages:
            return
        place = data.draw(st.integers(0, len(messages) - 1))
        length = data.draw(st.integers(0, len(messages[place]) - 1))
        cut = [*messages[:place], messages[place][:length], *messages[place + 1 :]]
        with pytest.raises(CorruptionError):
            parse(cut, width)

    @given(histories(), st.data())
    def test_any_byte_may_be_another_one(
        self, history: tuple[int, list[bytes], list[Expected]], data: st.DataObject
    ) -> None:
        """Either the damage is found, or it is within a value or a kind: nothing else is raised, and no row is lost."""
        width, messages, _rows = history
        if not messages:
            return
        place = data.draw(st.integers(0, len(messages) - 1))
        at = data.draw(st.integers(0, len(messages[place]) - 1))
        other = data.draw(st.integers(0, 255))
        damaged = messages[place][:at] + bytes([other]) + messages[place][at + 1 :]
        try:
            found = parse([*messages[:place], damaged, *messages[place + 1 :]], width)
        except CorruptionError:
            return
        assert len(found.ops) - sum(found.steps) == len(messages)
        describe(found, width)

    @pytest.mark.parametrize(
        ("message", "says"),
        [
            (inserted(b"1", b"2", oid=7), "another table"),
            (truncated(7, 8), "other tables"),
            (inserted(b"1"), "number of columns"),
            (inserted(b"1", ...), "lacks a value"),
            (deleted(b"1", ...), "lacks a value"),
            (updated(b"1", b"2", old=(b"1", ...)), "lacks a value"),
            (deleted(b"1", b"2", kind=b"N"), "does not belong"),
            (b"I" + deleted(b"1", b"2")[1:], "does not belong"),
            (updated(b"1", b"2", old=(b"1", b"2"))[:-15], "no new one"),
            (inserted(b"1", b"2") + b"\0", "does not end"),
            (inserted(b"1", b"2").replace(b"t", b"b", 1), "unknown kind"),
            (b"Y" + inserted(b"1", b"2")[1:], "no kind of a change"),
            (b"", "header"),
        ],
    )  # fmt: skip
    def test_it_is_named(self, message: bytes, says: str) -> None:
        with pytest.raises(CorruptionError, match=says):
            parse([inserted(b"1", b"2"), message], 2)

    def test_a_change_without_a_message_is_refused(self) -> None:
        for payloads in (pa.array([None], pa.binary()), pa.array([b""], pa.binary())):
            with pytest.raises(CorruptionError):
                parse_tuples(payloads, OID, 1)
