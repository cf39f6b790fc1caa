"""The rows of a table, rebuilt from its change log.

Changes are in order of ``_lsn`` and ``_seq``. Only those of the newest copy count, and of these only the ones behind
the last truncation. With a key, the last change of each key decides. Without one, every change adds or removes a row of
a multiset. Columns get names of their own while the log is worked on, since those of a table may hold any character.

A value that an update of a key did not send is found under the keys that the row had before. A row's life under one key
begins when it is copied, inserted or moved there, and ends when it is deleted or moved away. An update that moves a row
comes directly after the removal of its old key. So a life that begins by such an update continues the life that ended
there. A value that a life never got is the one at the end of the life before it, and so along the chain. Each round
skips twice as many lives as the one before.

Equal rows have the same bits: Spark takes -0.0 for 0.0 in whatever it groups by.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.errors import CorruptionError
from gobblin_assets.model.column_names import name_key
from gobblin_assets.rows.column_names import find_column
from gobblin_assets.rows.columns import named
from gobblin_assets.rows.joined_columns import JoinedColumn

_FLOATS: Final = (t.FloatType, t.DoubleType)


def holds_floats(kind: t.DataType) -> bool:
    return isinstance(kind, _FLOATS) or (isinstance(kind, t.ArrayType) and holds_floats(kind.elementType))


def type_to_group_by(kind: t.DataType) -> t.DataType:
    """The type to which values are cast to be grouped by, and from which they are cast back: floats become texts.

    Each number but NaN has a text of its own, which is read as that number again.
    """
    if isinstance(kind, _FLOATS):
        return t.StringType()
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(type_to_group_by(kind.elementType), kind.containsNull)
    return kind


ROUNDS_MAX: Final = 63
"""Enough for chains of as many lives as there can be changes."""

_MOVED: Final = "m"
"""The letter of rows that only have values of the update at their position."""


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
    """Rows to add to ``changes``: each has the values that an update of a key lacks, at the update's own position.

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


LOG_COLUMNS: Final = ("_op", "_lsn", "_seq", "_xid", "_commit_at", "_unchanged", "_copy")

_COPIED: Final = "r"
_TRUNCATED: Final = "t"
_REMOVING: Final = ("b", "d")


@dataclass(frozen=True, slots=True, order=True)
class ChangePlace:
    """The place of a change: in a copy, by ``_lsn`` and ``_seq``."""

    copy: int
    lsn: int
    seq: int


@dataclass(frozen=True, slots=True)
class KnownRows:
    """The rows that the table had behind the change at ``place``, by the names and types that the log has now."""

    rows: DataFrame
    place: ChangePlace


@dataclass(frozen=True, slots=True)
class RebuiltTable:
    """``place``: of the log's last change; None: it has none."""

    rows: DataFrame
    place: ChangePlace | None


@dataclass(frozen=True, slots=True)
class _Survey:
    """The result of one look at the log: its last place, the place of the last truncation in its copy, and the columns
    that some update has no value of.
    """

    last: ChangePlace
    cleared_at: tuple[int, int] | None
    unchanged: frozenset[str]


def rebuild_table(
    log: DataFrame,
    *,
    key: Sequence[str] | None,
    columns: Sequence[str],
    label: str,
    known: KnownRows | None = None,
    joined: Sequence[JoinedColumn] = (),
) -> RebuiltTable:
    """The table whose log ``log`` is, with these of its columns; ``key`` None: its changes have whole rows.

    ``known``: what stands before its place need not be in the log, and counts only as these rows. ``joined``: columns
    of which earlier rows have a value that no change says. ``label`` begins the messages.

    A Spark job looks at ``_op``, ``_lsn``, ``_seq``, ``_unchanged`` and ``_copy`` first. If updates lack values, a
    second one looks for those that changed a key as well, and only if there are some, as many follow as it takes to
    find the values under earlier keys. The rest is lazy.

    A query on the result fails if a key has no value, or if more rows are removed than there were.

    Raises:
        CorruptionError: the log lacks a column of the key.

    """
    later = log if known is None else log.where(_stands_behind(known.place))
    survey = _look_over(later)
    if survey is None:
        if known is not None:
            rows = _fill(_as_copied(log, known, columns), joined, known.place.copy)
            return RebuiltTable(rows.select(*map(named, columns)), known.place)
        return RebuiltTable(log.select(*map(named, columns)), None)
    changes = _list_changes(later, survey)
    if known is not None and known.place.copy == survey.last.copy and survey.cleared_at is None:
        changes = changes.unionByName(_as_copied(log, known, columns), allowMissingColumns=True)
    changes = _fill(changes, joined, survey.last.copy)
    if key is None:
        rows = _count_rows(changes, columns, label)
    else:
        rows = _take_last(changes, _pair_key(key, columns, label), columns, survey, label)
    return RebuiltTable(rows, survey.last)


def _stands_behind(place: ChangePlace) -> Column:
    """A row of an earlier copy stands before it, whatever its position is."""
    copy, lsn = f.col("_copy"), f.col("_lsn")
    in_copy = (copy == place.copy) & ((lsn > place.lsn) | ((lsn == place.lsn) & (f.col("_seq") > place.seq)))
    return (copy > place.copy) | in_copy


def _fill(changes: DataFrame, joined: Sequence[JoinedColumn], copy: int) -> DataFrame:
    """Changes before the place of a column, with what its row had in it all along."""
    values: dict[str, Column] = {}
    for each in joined:
        name = find_column(changes.columns, each.name)
        if name is not None and each.copy == copy:
            lsn, seq = f.col("_lsn"), f.col("_seq")
            is_before = (lsn < each.lsn) | ((lsn == each.lsn) & (seq < each.seq))
            value = f.when(is_before, f.lit(each.text).cast(changes.schema[name].dataType))
            values[name] = f.coalesce(named(name), value)
    return (
        changes.select(*(values.get(name, named(name)).alias(name) for name in changes.columns)) if values else changes
    )


def _as_copied(log: DataFrame, known: KnownRows, columns: Sequence[str]) -> DataFrame:
    """The known rows as changes: those of a copy that was made at their place."""
    ours = {"_op": _COPIED, "_lsn": known.place.lsn, "_seq": known.place.seq, "_copy": known.place.copy}
    return known.rows.select(
        *map(named, columns),
        *(f.lit(value).cast(log.schema[name].dataType).alias(name) for name, value in ours.items()),
    )


def _look_over(log: DataFrame) -> _Survey | None:
    """None: the log has no row."""
    is_truncation = f.col("_op") == _TRUNCATED
    found = log.agg(
        # NULL is less than any number: of a copy without a truncation, there is none.
        f.max(f.struct("_copy", f.when(is_truncation, f.col("_lsn")), f.when(is_truncation, f.col("_seq")))).alias(
            "newest"
        ),
        f.max(f.struct("_copy", "_lsn", "_seq")).alias("last"),
        f.array_distinct(f.flatten(f.collect_set("_unchanged"))).alias("unchanged"),
    ).collect()[0]
    if found.newest is None:
        return None
    _copy, lsn, seq = found.newest
    return _Survey(ChangePlace(*found.last), None if lsn is None else (lsn, seq), frozenset(found.unchanged))


def _list_changes(log: DataFrame, survey: _Survey) -> DataFrame:
    newest = log.where((f.col("_copy") == survey.last.copy) & (f.col("_op") != _TRUNCATED))
    if survey.cleared_at is None:
        return newest
    lsn, seq = survey.cleared_at
    # The first condition alone lets Parquet's statistics skip files.
    behind = (f.col("_lsn") > lsn) | (f.col("_seq") > seq)
    return newest.where((f.col("_lsn") >= lsn) & behind)


def _count_rows(changes: DataFrame, columns: Sequence[str], label: str) -> DataFrame:
    """Grouping takes NULL for equal to NULL, as it has to be here."""
    values = [f"v{place}" for place in range(len(columns))]
    kinds = [field.dataType for field in changes.select(*map(named, columns)).schema.fields]
    added = f.when(f.col("_op").isin(*_REMOVING), -1).otherwise(1)
    rows = changes.select(
        added.alias("added"),
        *(
            (named(name).cast(type_to_group_by(kind)) if holds_floats(kind) else named(name)).alias(value)
            for name, value, kind in zip(columns, values, kinds, strict=True)
        ),
    )
    counted = rows.groupBy(*values).agg(f.sum("added").alias("times"))
    message = (
        f"{label} removes a row that it does not have. If a column was added with a DEFAULT, or the replica identity "
        "was not FULL all the time, copy the table again: gobblin-assets sink recopy"
    )
    times = f.when(f.col("times") < 0, f.raise_error(f.lit(message)).cast("bigint")).otherwise(f.col("times"))
    # Bytes, since an array has an element for each of the equal rows.
    each = f.explode(f.array_repeat(f.lit(0).cast("tinyint"), times.cast("int")))
    return counted.select(*values, each.alias("each")).select(
        *(
            (f.col(value).cast(kind) if holds_floats(kind) else f.col(value)).alias(name)
            for name, value, kind in zip(columns, values, kinds, strict=True)
        )
    )


def _take_last(
    changes: DataFrame, key: Sequence[str], columns: Sequence[str], survey: _Survey, label: str
) -> DataFrame:
    places = {name: f"v{place}" for place, name in enumerate(columns)}
    unsent = {
        name: [each for each in survey.unchanged if name_key(each) == name_key(name)]
        for name in columns
        if name not in key
    }
    keyed = KeyedChanges(
        key=[places[name] for name in key],
        plain=[places[name] for name, unsent_as in unsent.items() if not unsent_as],
        gaps={places[name]: f"has_{places[name]}" for name, unsent_as in unsent.items() if unsent_as},
    )
    frame = changes.select(
        f.col("_op").alias("op"),
        f.col("_lsn").alias("lsn"),
        f.col("_seq").alias("seq"),
        *(_require_value(name, changes, label).alias(places[name]) for name in key),
        *(named(name).alias(place) for name, place in places.items() if name not in key),
        *(_is_sent(unsent_as).alias(keyed.gaps[places[name]]) for name, unsent_as in unsent.items() if unsent_as),
    )
    if keyed.gaps:
        moved = find_moved_values(frame, keyed)
        frame = frame if moved is None else frame.unionByName(moved, allowMissingColumns=True)
    return keyed.take_newest(frame).select(*_named_as(list(places.values()), columns))


def _pair_key(key: Sequence[str], columns: Sequence[str], label: str) -> list[str]:
    """The key's columns by the names that they have in the log."""
    pairs = {name: find_column(columns, name) for name in key}
    if missing := [name for name, found in pairs.items() if found is None]:
        raise CorruptionError(
            f"{label} has no column {missing[0]!a}, which is of the table's key",
            hint="Copy the table again: gobblin-assets sink recopy.",
        )
    return [found for found in pairs.values() if found is not None]


def _require_value(name: str, changes: DataFrame, label: str) -> Column:
    message = (
        f"{label} has a change without a value of {name!a}, which is of the table's key. The key has changed since: "
        "copy the table again: gobblin-assets sink recopy"
    )
    return f.coalesce(named(name), f.raise_error(f.lit(message)).cast(changes.schema[name].dataType))


def _is_sent(unsent_as: Sequence[str]) -> Column:
    """Whether a change has the value of a column, which ``_unchanged`` calls by one of these names."""
    is_unsent = f.lit(False)
    for name in unsent_as:
        is_unsent |= f.array_contains("_unchanged", f.lit(name))
    return ~f.coalesce(is_unsent, f.lit(False))


def _named_as(names: Sequence[str], aliases: Sequence[str]) -> list[Column]:
    return [named(name).alias(alias) for name, alias in zip(names, aliases, strict=True)]
