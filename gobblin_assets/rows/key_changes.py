"""Values that an update of a key did not send, found under the keys that the row had before.

A row's life under one key begins when it is copied, inserted or moved there, and ends when it is deleted or moved away.
An update that moves a row stands directly behind the removal of its old key: so each life that begins by such an update
continues the one that ended there. A value that a life never got is the one at the end of the life before it, and so
along the chain. Each round skips twice as many lives as the one before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from gobblin_assets.errors import CorruptionError
from gobblin_assets.rows.exact_groups import holds_floats

ROUNDS_MAX: Final = 63
"""Enough for chains of as many lives as there can be changes."""

_MOVED: Final = "m"
"""The letter of rows that only tell values of the update at their position."""


@dataclass(frozen=True, slots=True)
class KeyedChanges:
    """The columns of a frame of changes, beside ``op``, ``lsn`` and ``seq``.

    ``gaps``: the columns whose value a change may lack, each with the column that says whether a change has it.
    """

    key: Sequence[str]
    plain: Sequence[str]
    gaps: Mapping[str, str]

    def take_newest(self, changes: DataFrame) -> DataFrame:
        """The last row of each key that is still there; a value that its change lacks is the newest one before it.

        One shuffle, by the key. Every life begins by a change that has all values, after ``find_moved_values``: so no
        value outlives its row.
        """
        # Of two zeros, which are one key, the newest row has its own.
        floats = [name for name in self.key if holds_floats(changes.schema[name].dataType)]
        whole = [*floats, *self.plain]
        rows = changes.groupBy(*self.key).agg(
            _newest(f.col("op") != _MOVED, f.col("op"), *map(f.col, whole)).alias("last"),
            *(_newest(f.col(has), f.col(value).alias("is")).alias(value) for value, has in self.gaps.items()),
        )
        return rows.where(~f.col("last.op").isin("b", "d")).select(
            *(name for name in self.key if name not in floats),
            *(f.col(f"last.{name}").alias(name) for name in whole),
            *(f.col(f"{value}.is").alias(value) for value in self.gaps),
        )


def find_moved_values(changes: DataFrame, columns: KeyedChanges) -> DataFrame | None:
    """Rows to add to ``changes``: each tells the values that an update of a key lacks, at the update's own position.

    A Spark job looks for such updates. None: there are none. Else one more job a round.
    """
    moves = _find_moves(changes, columns).localCheckpoint()
    if moves.isEmpty():
        return None
    ends = _follow(_list_ends(changes, moves, columns), columns)
    return moves.join(ends, ["lsn", "seq"]).select(
        f.lit(_MOVED).alias("op"),
        "lsn",
        "seq",
        *columns.key,
        *columns.gaps,
        # Where the update has the value itself, it is the one to take.
        *((~f.col(f"sent_{value}")).alias(has) for value, has in columns.gaps.items()),
    )


def _find_moves(changes: DataFrame, columns: KeyedChanges) -> DataFrame:
    """Updates that lack a value directly behind a removal: position, new key, old key, and which values they have."""
    lacks = reduce(or_, (~f.col(has) for has in columns.gaps.values()))
    updates = changes.where((f.col("op") == "u") & lacks).select(
        "lsn", "seq", *columns.key, *(f.col(has).alias(f"sent_{value}") for value, has in columns.gaps.items())
    )
    removals = changes.where(f.col("op") == "b").select(
        "lsn", (f.col("seq") + 1).alias("seq"), *(f.col(name).alias(f"old_{name}") for name in columns.key)
    )
    return updates.join(removals, ["lsn", "seq"])


def _list_ends(changes: DataFrame, moves: DataFrame, columns: KeyedChanges) -> DataFrame:
    """For each update of a key (``lsn``, ``seq``): what the life before it got, and the update that began that life.

    ``from_lsn`` and ``from_seq`` are of that update; NULL if the life began otherwise, or nothing is left to find.
    """
    old_keys = moves.select(*(f.col(f"old_{name}").alias(name) for name in columns.key)).distinct()
    began = moves.select("lsn", "seq", f.lit(True).alias("began"))
    rows = (
        changes.select("op", "lsn", "seq", *columns.key, *columns.gaps, *columns.gaps.values())
        .join(old_keys, list(columns.key), "left_semi")
        .join(began, ["lsn", "seq"], "left")
    )
    before = Window.partitionBy(*columns.key).orderBy("lsn", "seq").rowsBetween(Window.unboundedPreceding, -1)
    numbered = rows.withColumn("life", f.coalesce(f.sum(_removes().cast("bigint")).over(before), f.lit(0)))
    lives = numbered.groupBy(*columns.key, "life").agg(
        _newest(f.col("op") == "b").alias("end"),
        _newest(f.col("began")).alias("start"),
        *(
            _newest(f.col(has) & ~_removes(), f.col(value).alias("is")).alias(value)
            for value, has in columns.gaps.items()
        ),
    )
    found = {value: f.col(value).isNotNull() for value in columns.gaps}
    return lives.where(f.col("end").isNotNull()).select(
        f.col("end.lsn").alias("lsn"),
        (f.col("end.seq") + 1).alias("seq"),
        *_from(f.col("start.lsn"), f.col("start.seq"), found),
        *(f.col(f"{value}.is").alias(value) for value in columns.gaps),
        *(each.alias(columns.gaps[value]) for value, each in found.items()),
    )


def _follow(ends: DataFrame, columns: KeyedChanges) -> DataFrame:
    """``ends`` with the values of the lives before them, as far as there are any."""
    for _round in range(ROUNDS_MAX):
        ends = ends.localCheckpoint()
        if ends.where(f.col("from_lsn").isNotNull()).isEmpty():
            return ends
        earlier = ends.toDF(*(f"earlier_{name}" for name in ends.columns))
        found = {
            value: f.col(has) | f.coalesce(f.col(f"earlier_{has}"), f.lit(False)) for value, has in columns.gaps.items()
        }
        joined = ends.join(
            earlier,
            (f.col("from_lsn") == f.col("earlier_lsn")) & (f.col("from_seq") == f.col("earlier_seq")),
            "left",
        )
        ends = joined.select(
            "lsn",
            "seq",
            *_from(f.col("earlier_from_lsn"), f.col("earlier_from_seq"), found),
            *(
                f.when(f.col(has), f.col(value)).otherwise(f.col(f"earlier_{value}")).alias(value)
                for value, has in columns.gaps.items()
            ),
            *(each.alias(columns.gaps[value]) for value, each in found.items()),
        )
    raise CorruptionError("a change log has changes of keys that lead back to themselves", rounds=ROUNDS_MAX)


def _from(lsn: Column, seq: Column, found: Mapping[str, Column]) -> tuple[Column, Column]:
    is_open = ~reduce(and_, found.values())
    return f.when(is_open, lsn).alias("from_lsn"), f.when(is_open, seq).alias("from_seq")


def _newest(counts: Column, *columns: Column) -> Column:
    """Position and columns of the newest row of a group that counts. A struct is compared from its first field on."""
    return f.max(f.when(counts, f.struct("lsn", "seq", *columns)))


def _removes() -> Column:
    return f.col("op").isin("b", "d")
