"""The layout of one dataset partition for reading: columns, axis of positions, conditions that always hold."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.column_names import find_alike
from gobblin_assets.model.extract import ExtractType
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.model.watermark import WatermarkType
from gobblin_assets.sources.jdbc.bounds import plan_window
from gobblin_assets.sources.jdbc.catalog import Catalog, Selected, Table
from gobblin_assets.sources.jdbc.dialect import ROW_ADDRESS, Dialect, write_table
from gobblin_assets.sources.jdbc.names import TableName, parse_table_name
from gobblin_assets.sources.jdbc.positions import Axis, write_interval
from gobblin_assets.sources.source_port import SourceRequest


@dataclass(frozen=True, slots=True)
class Layout:
    """One dataset partition as it is read: its columns, its axis of positions, its conditions.

    ``filters`` bound the dataset partition, in the source's SQL, beside the interval of a WorkUnit.
    """

    table: Table
    columns: tuple[Selected, ...]
    axis: Axis | None
    filters: tuple[str, ...]

    def source_query(self, dialect: Dialect, hidden: Mapping[str, str], *conditions: str) -> str:
        """A subquery: column *n* is called ``cN``, whatever its own name; ``hidden`` adds aliases of raw expressions.

        Aliases keep hostile names away from Spark. Raw expressions let conditions use an index.
        """
        shown = [f"{column.expression} AS {dialect.quote(f'c{n}')}" for n, column in enumerate(self.columns)]
        guards = [f"{c.guard} AS {dialect.quote(f'g{n}')}" for n, c in enumerate(self.columns) if c.guard]
        extra = [f"{expression} AS {dialect.quote(alias)}" for alias, expression in hidden.items()]
        return (
            f"SELECT {', '.join((*shown, *guards, *extra))} FROM {write_table(dialect, self.table.name)}"
            f"{write_where(*self.filters, *conditions)}"
        )


def write_where(*conditions: str) -> str:
    """A WHERE clause, or nothing."""
    given = [f"({condition})" for condition in conditions if condition]
    return f" WHERE {' AND '.join(given)}" if given else ""


def lay_out(catalog: Catalog, request: SourceRequest) -> Layout:
    """Look the table up and check every name and type that the dataset gives. RejectedError names the field."""
    spec, urn = request.spec, request.urn
    table = _get_table(catalog, request)
    names = _choose_columns(table, request)
    axis = _find_axis(catalog, table, request)
    for key in spec.primary_key:
        _require_column(table, key, f"datasets[{urn}].primary_key")
    if axis is not None:
        _require_read(axis.columns, names, request, "watermark.column")
        if spec.watermark is not None and spec.watermark.late_window:
            _require_read(spec.primary_key, names, request, "primary_key")
    columns = _select(catalog, table, names, request)
    for column in columns:
        if column.problem is not None:
            raise RejectedError(
                f"{table.name}.{column.name} is {column.type_text}: {column.problem}",
                field=f"datasets[{urn}].casts",
                hint=f"Write casts: {{{_yaml(column.name)}: {_yaml(column.cast)}}}, or leave it out of columns.",
                table=str(table.name),
                column=column.name,
                type=column.type_text,
            )
    filters = tuple(_write_filters(catalog.dialect, table, axis, request))
    return Layout(table, columns, axis, filters)


def _select(catalog: Catalog, table: Table, names: Sequence[str], request: SourceRequest) -> tuple[Selected, ...]:
    spec = request.spec
    # Rows are told apart by their keys only where some are read again.
    has_late_rows = spec.watermark is not None and bool(spec.watermark.late_window)
    try:
        return catalog.select(table, names, spec.casts, key=spec.primary_key if has_late_rows else ())
    except RejectedError as error:
        if error.field != "casts":
            raise
        raise RejectedError(error.message, field=f"datasets[{request.urn}].casts", hint=error.hint) from None


def bounds_partition(request: SourceRequest) -> bool:
    """Whether the layout's conditions hold for this partition alone."""
    spec, partition = request.spec, request.partition
    by_key = spec.partitions.kind in {PartitionKind.STATIC, PartitionKind.DYNAMIC} and partition.key is not None
    return by_key or (spec.extract is ExtractType.SNAPSHOT_ONLY and partition.window is not None)


def list_table_names(requests: Iterable[SourceRequest]) -> list[TableName]:
    """The tables of the requests, each once. A name that can't be parsed is left out: its own plan refuses it."""
    names: dict[TableName, None] = {}
    for request in {each.urn: each for each in requests}.values():
        with suppress(RejectedError):
            names[_name_of(request)] = None
    return list(names)


def _name_of(request: SourceRequest) -> TableName:
    return parse_table_name(request.spec.table or request.urn, field=f"datasets[{request.urn}].table")


def hidden_columns(dialect: Dialect, layout: Layout, split_by: object) -> dict[str, str]:
    """Aliases that units' conditions use: ``w0``, ``w1`` for positions, ``s0`` for what a snapshot is split by."""
    axis = layout.axis
    positions = zip(axis.columns, axis.types, strict=True) if axis else ()
    hidden = {f"w{n}": _hide(dialect, layout.table, name, kind) for n, (name, kind) in enumerate(positions)}
    if split_by == ROW_ADDRESS and dialect.row_address is not None:
        hidden["s0"] = dialect.row_address
    elif isinstance(split_by, list):
        hidden["s0"] = _hide(dialect, layout.table, str(split_by[0]), WatermarkType.LONG)
    return hidden


def _hide(dialect: Dialect, table: Table, name: str, kind: WatermarkType) -> str:
    return dialect.hide(dialect.quote(name), kind, _type_text(table, name))


def _get_table(catalog: Catalog, request: SourceRequest) -> Table:
    wanted = _name_of(request)
    table = catalog.find_table(wanted)
    if table is not None:
        return table
    known = [str(name) for name in catalog.list_tables()]
    raise RejectedError(
        f"the source has no table {wanted}",
        field=f"datasets[{request.urn}].table",
        hint=_suggest(str(wanted), known),
        table=str(wanted),
    )


def _choose_columns(table: Table, request: SourceRequest) -> list[str]:
    spec, urn = request.spec, request.urn
    every = [column.name for column in table.columns]
    names = every if spec.columns is None else list(spec.columns)
    for name in names:
        _require_column(table, name, f"datasets[{urn}].columns")
    for name in spec.casts:
        _require_column(table, name, f"datasets[{urn}].casts")
    alike = find_alike(names)
    if alike is not None:
        raise RejectedError(
            f"{table.name} has columns {alike[0]!r} and {alike[1]!r}, which Spark can't tell apart",
            field=f"datasets[{urn}].columns",
            hint="List the columns to read, with one of the two.",
        )
    if not names:
        raise RejectedError(
            f"no column of {table.name} is left to read", field=f"datasets[{urn}].columns", hint="List at least one."
        )
    return names


def _find_axis(catalog: Catalog, table: Table, request: SourceRequest) -> Axis | None:
    spec, urn = request.spec.watermark, request.urn
    if spec is None:
        return None
    field = f"datasets[{urn}].watermark"
    lead = _get_order(catalog, table, spec.column, f"{field}.column")
    opted = spec.type is WatermarkType.STRING or (spec.key_column is not None and spec.type is WatermarkType.COMPOSITE)
    asked = None if spec.key_column is not None and spec.type is WatermarkType.COMPOSITE else spec.type
    found = f"{table.name}.{spec.column} is {_type_text(table, spec.column)}"
    if lead is WatermarkType.STRING and (not opted or spec.key_column is not None):
        raise RejectedError(
            f"{found}; expected a number, a date or a timestamp",
            field=f"{field}.column",
            hint="Texts compare byte by byte ('10' is less than '9'): if that is the order in which rows arrive, "
            "write watermark: {type: string}, without a key_column.",
        )
    if asked is not None and asked is not lead:
        raise RejectedError(
            f"{found}, which gives positions of type {lead}; expected {asked}",
            field=f"{field}.column",
            hint="Name a column of that type, or leave watermark.type out.",
        )
    if spec.column in request.spec.casts:
        raise RejectedError(
            f"{spec.column} is cast, and positions are those of the column itself",
            field=f"datasets[{urn}].casts",
            hint="Leave the column of positions as it is; convert it by a converter.",
        )
    if spec.key_column is None:
        return Axis(spec.column, lead)
    key = _get_order(catalog, table, spec.key_column, f"{field}.key_column")
    if key not in {WatermarkType.LONG, WatermarkType.STRING}:
        raise RejectedError(
            f"{table.name}.{spec.key_column} is {_type_text(table, spec.key_column)}; expected an integer or a text",
            field=f"{field}.key_column",
            hint="Name a column that tells apart rows of the same time.",
        )
    return Axis(spec.column, lead, spec.key_column, key)


def _get_order(catalog: Catalog, table: Table, name: str, field: str) -> WatermarkType:
    _require_column(table, name, field)
    column = table.find_column(name)
    found = None if column is None else column.watermark_type
    if found is None or (found is WatermarkType.STRING and not catalog.dialect.has_binary_text):
        raise RejectedError(
            f"{table.name}.{name} is {_type_text(table, name)}, which has no order that positions could use; "
            "expected an integer of up to 64 bits, a date or a timestamp",
            field=field,
            hint="Name another column.",
        )
    return found


def _write_filters(dialect: Dialect, table: Table, axis: Axis | None, request: SourceRequest) -> Iterable[str]:
    spec, partition = request.spec, request.partition
    if spec.where is not None:
        yield spec.where
    if spec.partitions.kind in {PartitionKind.STATIC, PartitionKind.DYNAMIC} and partition.key is not None:
        field = f"datasets[{request.urn}].partitions.column"
        if spec.partitions.column is None:
            raise RejectedError(
                f"{spec.partitions.kind} partitions need the column whose value is the key",
                field=field,
                hint="Name it: partitions: {column: region}.",
            )
        _require_column(table, spec.partitions.column, field)
        type_text = _type_text(table, spec.partitions.column)
        condition = dialect.equals_key(dialect.quote(spec.partitions.column), partition.key, type_text)
        if condition is None:
            raise RejectedError(
                f"{table.name}.{spec.partitions.column} is {type_text}, which can't be compared exactly with "
                f"{partition.key!r}",
                field=field,
                hint="Write keys as the source writes the column's values, or name a column of whole numbers.",
            )
        yield condition
    if spec.extract is ExtractType.SNAPSHOT_ONLY and partition.window is not None:
        if axis is None:
            raise RejectedError(
                "time partitions are windows of a column",
                field=f"datasets[{request.urn}].watermark",
                hint="Name it: watermark: {column: created_at}.",
            )
        start, end = plan_window(request, axis)
        if end is not None:
            names = tuple(dialect.quote(name) for name in axis.columns)
            yield write_interval(dialect, axis, names, Interval(start, end))


def _require_column(table: Table, name: str, field: str) -> None:
    if table.find_column(name) is None:
        raise RejectedError(
            f"{table.name} has no column {name!r}",
            field=field,
            hint=_suggest(name, [column.name for column in table.columns]),
            table=str(table.name),
            column=name,
        )


def _require_read(needed: Iterable[str], names: Sequence[str], request: SourceRequest, what: str) -> None:
    for name in needed:
        if name not in names:
            raise RejectedError(
                f"{name!r} is needed as {what}, and columns leaves it out",
                field=f"datasets[{request.urn}].columns",
                hint="Add it.",
            )


def _suggest(wanted: str, known: Sequence[str]) -> str:
    # Lower case is compared: databases fold names, so the wrong case is the likeliest mistake.
    spelled = {name.lower(): name for name in reversed(known)}
    close = [spelled[name] for name in difflib.get_close_matches(wanted.lower(), list(spelled), n=3, cutoff=0.5)]
    ends = [name for name in known if name.lower().endswith("." + wanted.lower())]
    offered = list(dict.fromkeys((*ends, *close)))[:3]
    if offered:
        return f"Did you mean {' or '.join(repr(name) for name in offered)}? Names are matched exactly."
    return f"There are: {', '.join(known[:10])}{', …' if len(known) > 10 else ''}." if known else "There is none."


def _type_text(table: Table, name: str) -> str:
    column = table.find_column(name)
    return "" if column is None else column.type_text


def _yaml(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
