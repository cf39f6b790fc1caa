"""What a change log must have, by an oracle of its own: a second slot, read by SQL, whose bytes are taken apart here.

The rows of a copy are no changes. What follows them is judged by a replay that accepts nothing twice, and no gap: a
row is inserted only where there is none, and changed or deleted only where there is one.
"""

import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gobblin_assets.sources.postgres_log.log_starts import LOG_FACT
from tests.support.changed_tables import ChangedTables
from tests.support.postgres import Database

_SLOT: Final = "audit"
_MAKE: Final = "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')"
_READ: Final = """
    SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', '1',
                                                         'publication_names', 'lake')"""

Change = tuple[int, int, str]
"""LSN of the commit, place in the transaction, kind."""


@dataclass
class AuditedLog:
    """Begins when it is made; nothing may be open in the server then."""

    database: Database
    _tables: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with self.database.connect() as connection:
            connection.execute(_MAKE, [self._name])

    @property
    def _name(self) -> str:
        # Slots are the server's, which other tests share.
        return f"{_SLOT}_{self.database.database}"

    def read(self) -> Mapping[str, "Counter[Change]"]:
        """All changes since it was made, by table."""
        found: defaultdict[str, Counter[Change]] = defaultdict(Counter)
        lsn = number = 0
        with self.database.connect() as connection:
            for (data,) in connection.execute(_READ, [self._name]):
                message: Any = data
                kind = chr(message[0])
                if kind == "B":
                    (lsn,), number = struct.unpack_from(">q", message, 1), 1
                elif kind == "R":
                    oid, rest = struct.unpack_from(">I", message, 1)[0], message[5:]
                    self._tables[oid] = rest.split(b"\0")[1].decode()
                else:
                    for table, op in self._list_changes(kind, message):
                        found[table][lsn, number, op] += 1
                        number += op == "b"
                    number += kind in "IUDT"
        return found

    def _list_changes(self, kind: str, message: bytes) -> Iterator[tuple[str, str]]:
        if kind in "IUD":
            table = self._tables[struct.unpack_from(">I", message, 1)[0]]
            if kind == "U" and message[5:6] in (b"K", b"O"):
                yield table, "b"
            yield table, {"I": "c", "U": "u", "D": "d"}[kind]
        elif kind == "T":
            (count,) = struct.unpack_from(">I", message, 1)
            for oid in struct.unpack_from(f">{count}I", message, 6):
                yield self._tables[oid], "t"


def require_whole_log(tables: ChangedTables, audited: AuditedLog) -> None:
    """Each change since the copies, up to where the tables are published, is there once, and none other is.

    Of an update that moved a row between ranges of a copy, one half may be left, by a letter of its own. What begins a
    new copy is none of the log's.
    """
    changes = audited.read()
    for table in tables.tables:
        rows = tables.log_of(table).to_pylist()
        expected = changes.get(table, Counter())
        found = Counter(_as_sent(row, expected) for row in rows if row["_op"] != "r" and row["_seq"] >= 0)
        extra = found - expected
        assert not extra, f"{table}: {extra.total()} changes are twice, or none of the log's: {[*extra][:3]}"
        bounds = range(until_of(tables, table), tables.published_to(table))
        missing = Counter({each: count for each, count in (expected - found).items() if each[0] in bounds})
        assert not missing, f"{table}: {missing.total()} changes are missing: {[*missing][:3]}"


def _as_sent(row: Mapping[str, Any], expected: "Counter[Change]") -> Change:
    found = row["_lsn"], row["_seq"], row["_op"]
    whole = row["_lsn"], row["_seq"], {"c": "u", "d": "b"}.get(row["_op"], row["_op"])
    return found if found in expected else whole


def until_of(tables: ChangedTables, table: str) -> int:
    """Where the server's log was when the last range of the table's copy was taken; 0 without a copy."""
    facts: Any = tables.facts_of(table)[LOG_FACT]
    last = facts["ranges"]["seen"][-1] if "ranges" in facts else facts.get("seen", "@0/0")
    high, _, low = str(last).partition("@")[2].partition("/")
    return int(high, 16) << 32 | int(low, 16)


def require_replay(rows: "list[dict[str, Any]]", key: str) -> None:
    """``rows``: of one copy's life, in order. AssertionError where one of them does not fit those before."""
    there: set[object] = set()
    is_moved = False
    for row in rows:
        op, value = row["_op"], row[key]
        where = f"{op} of {key} {value} at {row['_lsn']}, {row['_seq']}"
        if op == "t":
            there.clear()
        elif op in "rc" or (op == "u" and is_moved):
            assert value not in there, f"{where}: the row is there already"
            there.add(value)
        else:
            assert value in there, f"{where}: there is no such row"
            if op in "bd":
                there.remove(value)
        is_moved = op == "b"
