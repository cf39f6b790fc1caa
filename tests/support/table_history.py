"""A table as a Python model, which random transactions change, and the change log that Postgres would write of it.

Several tables share a log: the first column says which one a row is of. So one read of the log compares many histories.
"""

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

KEY = ("h", "i.d `x`")
LARGE = ("doc", "b.ig")
"""The columns whose values Postgres leaves out of an update that does not touch them."""
COLUMNS = (*KEY, "Na me", "n", *LARGE)
KEYS = range(1, 7)
"""Few, so that they are taken again and again."""

Row: TypeAlias = dict[str, Any]
Values: TypeAlias = tuple[Any, ...]

_AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.int32()) for name in KEY),
        *(pa.field(name, pa.string()) for name in COLUMNS if name not in (*KEY, "n")),
        pa.field("n", pa.int64()),
        pa.field("_op", pa.string()),
        pa.field("_lsn", pa.int64()),
        pa.field("_seq", pa.int64()),
        pa.field("_xid", pa.int64()),
        pa.field("_commit_at", pa.timestamp("us", "UTC")),
        pa.field("_unchanged", pa.list_(pa.string())),
        pa.field("_copy", pa.int32()),
    ]
)


@dataclass
class TableHistory:
    """``is_full``: the replica identity. ``has_key`` False: rows may be equal. ``moves``: whether keys change."""

    seed: str
    _: KW_ONLY
    is_full: bool = False
    has_key: bool = True
    moves: bool = True
    log: list[Row] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    table: int = 0
    _copy: int = 1
    _lsn: int = 1_000
    _seq: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def current(self) -> Counter[Values]:
        return Counter(tuple(row[name] for name in COLUMNS) for row in self.rows)

    def copy(self) -> None:
        """A copy, whose number is new if there are changes already."""
        self._copy += bool(self.log)
        self._begin()
        for row in self.rows:
            self._write("r", row, seq=0)

    def truncate(self) -> None:
        """All tables of the log, in the middle of a transaction."""
        self._begin()
        self._change()
        self._write("t", {})
        self.rows = []
        self._change()

    def run(self, transactions: int, *, table: int) -> None:
        """Random changes of the rows of one table."""
        self.table = table
        for _number in range(transactions):
            self._begin()
            for _statement in range(self.random.randint(1, 3)):
                self._change()

    def wander(self, moves: int, *, table: int) -> None:
        """One row changes its key again and again, and its large values are sent only once, at the beginning."""
        self.table = table
        self._begin()
        self._insert()
        row = self._pick()
        row.update(dict.fromkeys(LARGE, "sent once"))
        self.log[-1].update(row)
        for _number in range(moves):
            self._begin()
            self._set(row, {KEY[1]: self.random.choice(self._free())}, sends=0.0)

    def save(self, folder: Path, *, files: int = 3, since: int = 0) -> str:
        """Write the log as Parquet, its rows in any order; ``since``: without the first ones."""
        folder.mkdir()
        rows = self.random.sample(self.log[since:], len(self.log) - since)
        for number in range(files):
            pq.write_table(pa.Table.from_pylist(rows[number::files], schema=_SCHEMA), folder / f"{number}.parquet")
        return str(folder)

    def _change(self) -> None:
        choices: list[Callable[[], object]] = [self._insert]
        if any(row["h"] == self.table for row in self.rows):
            choices += [self._update, self._update, self._update, self._delete, self._replace]
            choices += [self._move, self._move, self._swap, self._shift] if self.moves else []
        self.random.choice(choices)()

    def _insert(self, key: int | None = None) -> None:
        free = self._free()
        if key is None and not free:
            return
        row: Row = {"h": self.table, KEY[1]: self.random.choice(free) if key is None else key}
        row |= {name: self._value(name) for name in COLUMNS if name not in KEY}
        self.rows.append(row)
        self._write("c", row)

    def _delete(self) -> int:
        row = self._pick()
        self.rows.remove(row)
        self._write("d", row if self.is_full else {name: row[name] for name in KEY})
        return int(row[KEY[1]])

    def _replace(self) -> None:
        """The same key for another row, in one transaction."""
        self._insert(self._delete())
        if self.random.random() < 0.5:
            self._update()

    def _update(self) -> None:
        self._set(self._pick(), {})

    def _move(self) -> None:
        free = self._free()
        if free:
            self._set(self._pick(), {KEY[1]: self.random.choice(free)})

    def _swap(self) -> None:
        """Two rows take each other's key, by way of a free one."""
        mine, free = [row for row in self.rows if row["h"] == self.table], self._free()
        if len(mine) < 2 or not free:
            return
        one, other = self.random.sample(mine, 2)
        between, first, second = self.random.choice(free), one[KEY[1]], other[KEY[1]]
        self._set(one, {KEY[1]: between})
        self._set(other, {KEY[1]: first})
        self._set(one, {KEY[1]: second})

    def _shift(self) -> None:
        """Every row takes the next key, the last one first."""
        for row in sorted((row for row in self.rows if row["h"] == self.table), key=lambda row: -row[KEY[1]]):
            if row[KEY[1]] + 1 in self._free():
                self._set(row, {KEY[1]: row[KEY[1]] + 1})

    def _set(self, row: Row, key: Row, *, sends: float = 0.3) -> None:
        changed = {name for name in COLUMNS if name not in KEY and self.random.random() < sends}
        if self.is_full:
            self._write("b", dict(row))
        elif key:
            self._write("b", {name: row[name] for name in KEY})
        row.update(key)
        row.update({name: self._value(name) for name in changed})
        unsent: list[str] = []
        if not self.is_full:
            kept = [name for name in LARGE if name not in changed and row[name] is not None]
            unsent = [name for name in kept if self.random.random() >= sends * 0.7]
        sent = {name: value for name, value in row.items() if name not in unsent}
        self._write("u", {**sent, "_unchanged": unsent or None})

    def _pick(self) -> Row:
        return self.random.choice([row for row in self.rows if row["h"] == self.table])

    def _free(self) -> list[int]:
        taken = {row[KEY[1]] for row in self.rows if row["h"] == self.table} if self.has_key else set()
        return [key for key in KEYS if key not in taken]

    def _value(self, name: str) -> object:
        if self.random.random() < 0.2:
            return None
        # Without a key, rows have to be equal now and then.
        number = self.random.randint(1, 1_000_000 if self.has_key else 2)
        return number if name == "n" else f"{name} {number}"

    def _begin(self) -> None:
        self._lsn += self.random.randint(1, 9)
        self._seq = 0

    def _write(self, op: str, row: Row, *, seq: int | None = None) -> None:
        if seq is None:
            # Other tables of the publication have changes of the transaction too, but not between b and u.
            self._seq += 1 if op == "u" else self.random.randint(1, 3)
            seq = self._seq
        self.log.append(
            {
                **row,
                "_op": op,
                "_lsn": self._lsn,
                "_seq": seq,
                "_xid": None if op == "r" else self._lsn,
                "_commit_at": _AT,
                "_copy": self._copy,
            }
        )
