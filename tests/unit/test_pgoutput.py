"""Messages of ``pgoutput`` other than rows: what they say, and bytes that are none."""

import datetime as dt
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.errors import CorruptionError
from gobblin_assets.sources.postgres_log.pgoutput import (
    Begin,
    Commit,
    LogicalMessage,
    RelationColumn,
    RelationMessage,
    TruncateMessage,
    parse_begin,
    parse_commit,
    parse_logical_message,
    parse_lsn,
    parse_relation,
    parse_truncate,
    write_lsn,
)

MICROS = 820_573_200_123_456
AT = dt.datetime(2000, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=MICROS)
RELATION = RelationMessage(
    4_000_000_000,
    "Sales",
    "größe",
    "f",
    (RelationColumn("id", 20, -1, True), RelationColumn("price", 1700, 786_438, False)),
)

MESSAGES: dict[str, tuple[Callable[[bytes], object], bytes, object]] = {
    "begin": (
        parse_begin,
        b"B" + struct.pack(">QqI", 2**40, MICROS, 4_294_967_290),
        Begin(2**40, AT, 4_294_967_290),
    ),
    "commit": (
        parse_commit,
        b"C" + struct.pack(">BQQq", 0, 2**40, 2**40 + 48, MICROS),
        Commit(2**40, 2**40 + 48, AT),
    ),
    "relation": (
        parse_relation,
        b"R" + struct.pack(">I", 4_000_000_000) + b"Sales\0" + "größe".encode() + b"\0f" + struct.pack(">H", 2)
        + b"\1id\0" + struct.pack(">Ii", 20, -1) + b"\0price\0" + struct.pack(">Ii", 1700, 786_438),
        RELATION,
    ),
    "truncate": (
        parse_truncate,
        b"T" + struct.pack(">IBII", 2, 2, 16_400, 16_500),
        TruncateMessage((16_400, 16_500)),
    ),
    "message": (
        parse_logical_message,
        b"M" + struct.pack(">BQ", 1, 77) + b"outbox\0" + struct.pack(">I", 3) + b"\0ab",
        LogicalMessage(True, 77, "outbox", b"\0ab"),
    ),
    "empty message": (
        parse_logical_message,
        b"M" + struct.pack(">BQ", 0, 77) + b"\0" + struct.pack(">I", 0),
        LogicalMessage(False, 77, "", b""),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
class TestMessages:
    def test_they_say_what_postgres_wrote(self, name: str) -> None:
        parse, payload, expected = MESSAGES[name]
        assert parse(payload) == expected

    def test_any_other_length_and_another_kind_are_refused(self, name: str) -> None:
        parse, payload, _expected = MESSAGES[name]
        damaged = [payload[:length] for length in range(len(payload))]
        for each in [*damaged, payload + b"\0", b"I" + payload[1:]]:
            with pytest.raises(CorruptionError):
                parse(each)


def test_a_name_of_the_catalogue_comes_without_its_schema() -> None:
    assert parse_relation(b"R" + struct.pack(">I", 1) + b"\0t\0d\0\0").schema == "pg_catalog"


@pytest.mark.parametrize(
    "payload",
    [
        b"R" + struct.pack(">I", 1) + b"s\0t\0x\0\0",
        b"R" + struct.pack(">I", 1) + b"s\0\xff\0d\0\0",
        b"B" + struct.pack(">QqI", 1, 2**63 - 1, 1),
    ],
    ids=["identity", "name", "time"],
)
def test_values_that_postgres_never_sends_are_refused(payload: bytes) -> None:
    with pytest.raises(CorruptionError):
        (parse_relation if payload.startswith(b"R") else parse_begin)(payload)


@given(st.integers(0, 2**64 - 1))
def test_a_place_in_the_log_reads_back(lsn: int) -> None:
    assert parse_lsn(write_lsn(lsn)) == lsn


def test_a_place_is_written_as_postgres_does() -> None:
    assert write_lsn(0x16_B374D848) == "16/B374D848"
    assert parse_lsn("16/b374d848") == 0x16_B374D848
    for text in ("", "16", "16/", "/1", "16/B374D848 ", "123456789/0", "g/0", "-1/0"):
        with pytest.raises(CorruptionError):
            parse_lsn(text)
