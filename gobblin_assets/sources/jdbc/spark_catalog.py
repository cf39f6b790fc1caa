"""Any database that Spark's JDBC reads: metadata through the same driver, one short query at a time.

There is no snapshot to share: each reader sees the table as it is when its statement starts. The pinned bounds still
keep WorkUnits apart; the commit lag and the late window cover rows that commit meanwhile.
"""

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.watermark import Scalar, Watermark, WatermarkType
from gobblin_assets.sources.jdbc.catalog import Answer, Estimate, Question, Selected, Table, TableColumn
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.dialect import ColumnReading, DescribedColumn, SparkDialect, write_table
from gobblin_assets.sources.jdbc.failures import judge_driver
from gobblin_assets.sources.jdbc.names import TableName
from gobblin_assets.sources.jdbc.questions import answer_one

CLOCK_DIFFERENCE_S_MAX: Final = 600
"""A clock without a zone that differs more from this machine's clock shows another zone's time."""

_NOT_NULL: Final = re.compile(r"\s+NOT NULL$")
_MOMENT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,6})0*)?(?: ?([+-]\d\d)(?::?(\d\d))?| ?Z)?"
)
_NOT_MEANT: Final = re.compile(r"[\s\"`\[\]]")
_FLOATS: Final = frozenset({"FLOAT", "DOUBLE"})
_ROWS: Final = 1_000
_ALWAYS_DECLARED: Final = ("column_name", "position", "type_text", "nullable")
_SOMETIMES_DECLARED: Final = ("key_place", "column_comment", "table_comment")


@dataclass(frozen=True, slots=True)
class _Declared:
    """A column as the database describes it. ``key_place``: its place in the primary key, from 1; 0: not in the key."""

    name: str
    type_text: str
    nullable: bool
    key_place: int
    comment: str | None
    table_comment: str | None


class SparkCatalog:
    """A catalogue over Spark's JDBC, whose driver opens a connection for each query.

    All answers are texts, because drivers do not change texts.
    """

    shares_snapshot = False

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        connection: JdbcConnection,
        dialect: SparkDialect,
        read_timeout_s: int,
    ) -> None:
        self._spark = spark
        self._connection = connection
        self._read_timeout_s = read_timeout_s
        self.dialect: SparkDialect = dialect
        self._is_probed = False
        self._text_is_binary: bool | None = None

    def now(self) -> dt.datetime:
        text = str(self._rows(self.dialect.clock_query, "clock")[0][0])
        ours = SystemClock().now()
        found = parse_moment(text)
        if found is not None and found.tzinfo is not None:
            return found.astimezone(dt.UTC)
        moment = None if found is None else found.replace(tzinfo=dt.UTC)
        is_near = moment is not None and abs(moment - ours).total_seconds() <= CLOCK_DIFFERENCE_S_MAX
        if moment is not None and (self.dialect.clock_is_utc or is_near):
            return moment
        raise RejectedError(
            f"the source's clock says {text!r} at {ours:%Y-%m-%d %H:%M:%S} UTC: its zone is unknown",
            field=f"connections[{self._connection.name}].url",
            hint="Set both clocks, set the sessions' time zone to UTC by the driver's properties, or use a watermark "
            "that is not a time.",
        )

    def list_tables(self) -> Sequence[TableName]:
        rows = self._rows(self.dialect.tables_query, "table_schema", "table_name")
        return sorted(TableName(schema, table) for schema, table in rows)

    def look_up(self, _names: Sequence[TableName]) -> None:
        """Nothing: drivers are asked about each table."""

    def find_table(self, name: TableName) -> Table | None:
        schema = name.schema
        if schema is None:
            schema = self._rows(self.dialect.schema_query, "table_schema")[0][0]
        full = TableName(schema, name.table)
        declared = self._find_declared(full)
        if not declared:
            return None
        self._probe(full)
        texts = {each.name: _NOT_NULL.sub("", each.type_text) for each in declared}
        orders = {column: reading.order for column, reading in self._read_columns(full, texts).items()}
        columns = tuple(
            TableColumn(each.name, texts[each.name], each.nullable, self._usable(orders[each.name]), each.comment)
            for each in declared
        )
        keys = sorted((each.key_place, each.name) for each in declared if each.key_place)
        return Table(full, columns, tuple(column for _, column in keys), declared[0].table_comment)

    def select(
        self, table: Table, columns: Sequence[str], casts: Mapping[str, str], *, key: Collection[str] = ()
    ) -> tuple[Selected, ...]:
        texts = {column.name: column.type_text for column in table.columns}
        shown = [name for name in columns if name not in casts or name in key]
        plain = self._read_columns(table.name, {name: texts[name] for name in shown})
        for name in [name for name in columns if name in casts and name in key]:
            text = self.dialect.cast_to_text(self.dialect.quote(name))
            _require_text_of_key(table.name, name, casts[name], text, plain[name])
        found = self._describe(table.name, {name: f"({casts[name]})" for name in columns if name in casts}, casts)
        chosen = []
        for name in columns:
            if name in casts:
                field = found[name]
                text = "" if field is None else field.spark_type
                reading = self.dialect.read_described(f"({casts[name]})", field, "")
            else:
                text, reading = texts[name], plain[name]
            chosen.append(
                _select(name, text, reading, reading.cast or self.dialect.cast_to_text(self.dialect.quote(name)))
            )
        return tuple(chosen)

    def find_spark_types(self, table: Table, selected: Sequence[Selected]) -> Mapping[str, str]:
        declared = {each.name: (each.spark_type or each.wire).lower() for each in selected}
        unknown = {each.name: each.expression for each in selected if not declared[each.name]}
        described = self._fields_of(table.name, unknown) if unknown else {}
        return declared | {name: field.spark_type for name, field in described.items()}

    def fetch_row(self, sql: str, types: Sequence[WatermarkType]) -> tuple[Scalar | None, ...]:
        row = self._rows(sql, *(f"c{number}" for number in range(len(types))))[0]
        return tuple(_to_scalar(value, kind) for value, kind in zip(row, types, strict=True))

    def estimate(self, table: Table, condition: str) -> Estimate:
        sql = f"SELECT COUNT(*) AS {self.dialect.quote('c0')} FROM {write_table(self.dialect, table.name)}{condition}"
        return Estimate(int(self._rows(sql, "c0")[0][0]), None)

    def answer_together(self, questions: Sequence[Question]) -> Sequence[Answer | Exception]:
        return [answer_one(self, each) for each in questions]

    def find_quantiles(self, _table: Table, _column: TableColumn, _last: Scalar) -> Sequence[Watermark]:
        return []

    def cut_rows(self, _table: Table, _count: int) -> Sequence[str]:
        return []

    def read_properties(self, fetch_size_rows: int) -> Mapping[str, str]:
        statement = self.dialect.session_statement
        return {
            "queryTimeout": str(self._read_timeout_s),
            **({} if statement is None else {"sessionInitStatement": statement}),
            **self.dialect.read_options(self._connection.driver_class, fetch_size_rows),
        }

    def _find_declared(self, name: TableName) -> list["_Declared"]:
        """The columns in order."""
        sql = self.dialect.columns_query(name)
        shown = [*_ALWAYS_DECLARED, *(each for each in _SOMETIMES_DECLARED if each in sql)]
        rows = [dict(zip(shown, row, strict=True)) for row in self._rows(sql, *shown)]
        return [
            _Declared(
                str(row["column_name"]),
                str(row["type_text"]),
                row["nullable"] != "NO",
                int(row.get("key_place") or 0),
                row.get("column_comment") or None,
                row.get("table_comment") or None,
            )
            for row in sorted(rows, key=lambda row: int(row["position"]))
        ]

    def _probe(self, table: TableName) -> None:
        query = None if self._is_probed else self.dialect.probe_query(table)
        self._is_probed = True
        if query is None:
            return
        try:
            answer = tuple(self._rows(query, "p0", "p1", "p2")[0])
        except RejectedError:
            answer = None  # the database can't answer the probe, so its times are refused
        self.dialect = self.dialect.judge_probe(answer)

    def _read_columns(self, table: TableName, texts: Mapping[str, str]) -> dict[str, ColumnReading]:
        """How to read columns: by their declared types or, in an unknown database, by the types from its driver."""
        quoted = {name: self.dialect.quote(name) for name in texts}
        declared = {name: self.dialect.read_declared(quoted[name], text) for name, text in texts.items()}
        unknown = {name: quoted[name] for name, reading in declared.items() if reading is None}
        described = self._describe(table, unknown, {})
        found = {name: self.dialect.read_described(quoted[name], described[name], texts[name]) for name in unknown}
        return {name: reading if reading is not None else found[name] for name, reading in declared.items()}

    def _describe(
        self, table: TableName, expressions: Mapping[str, str], casts: Mapping[str, str]
    ) -> dict[str, DescribedColumn | None]:
        """Spark's type for each expression; None: Spark has none. A cast that the database refuses raises its error."""
        if not expressions:
            return {}
        try:
            return dict(self._fields_of(table, expressions))
        except GobblinError:
            # One bad column fails the query for all, so each column is asked for alone.
            found: dict[str, DescribedColumn | None] = {}
            for name, expression in expressions.items():
                try:
                    found |= self._fields_of(table, {name: expression})
                except GobblinError as error:
                    if name in casts or not isinstance(error, RejectedError):
                        raise
                    found[name] = None
            if all(field is None for field in found.values()):
                raise
            return found

    def _fields_of(self, table: TableName, expressions: Mapping[str, str]) -> dict[str, DescribedColumn]:
        shown = ", ".join(f"{e} AS {self.dialect.quote(f'c{n}')}" for n, e in enumerate(expressions.values()))
        schema = self._load(f"SELECT {shown} FROM {write_table(self.dialect, table)}", ()).schema
        found = [DescribedColumn(each.dataType.simpleString(), each.metadata) for each in schema.fields]
        return dict(zip(expressions, found, strict=True))

    def _usable(self, order: WatermarkType | None) -> WatermarkType | None:
        return None if order is WatermarkType.STRING and not self._has_binary_text() else order

    def _has_binary_text(self) -> bool:
        if self._text_is_binary is None:
            query = self.dialect.binary_text_query
            asked = query is None or self._rows(query, "is_binary")[0][0] == "1"
            self._text_is_binary = self.dialect.has_binary_text and asked
        return self._text_is_binary

    def _rows(self, sql: str, *columns: str) -> list[Any]:
        frame = self._load(sql, columns)
        try:
            rows: list[Any] = frame.collect()
        except PySparkException as error:
            raise judge_driver(error, self._connection) from None
        if not rows and columns == ("c0",):
            raise RetryableError("the source gave no row where one was due")
        return rows

    def _load(self, sql: str, columns: Iterable[str]) -> DataFrame:
        schema = ", ".join(f"{column} STRING" for column in columns)
        properties = {
            **self._connection.spark_properties(),
            **self.read_properties(_ROWS),
            **({"customSchema": schema} if schema else {}),
            "preferTimestampNTZ": "true",
        }
        try:
            frame = self._spark().read.jdbc(self._connection.spark_url, f"({sql}) q", properties=properties)
            _ = frame.schema  # on Connect, only this asks the driver
        except Exception as error:  # noqa: BLE001  (py4j raises its own errors, which no family of pyspark's covers)
            raise judge_driver(error, self._connection) from None
        return frame


def _require_text_of_key(table: TableName, name: str, cast: str, text: str, reading: ColumnReading) -> None:
    """The database can't be asked whether a cast leads back to each value: only a text that has all of it is taken."""
    given, known = (_NOT_MEANT.sub("", each).lower() for each in (cast, text))
    # Texts of floats have fewer digits in some databases.
    if given == known and reading.wire not in _FLOATS:
        return
    raise RejectedError(
        f"{table}.{name} tells late rows apart, and its cast may give two of them one key",
        field="casts",
        hint=f"Write {text}, leave the cast out, or name other columns as primary_key.",
        column=name,
    )


def _select(name: str, type_text: str, reading: ColumnReading, cast: str) -> Selected:
    return Selected(
        name,
        reading.expression,
        type_text,
        problem=reading.problem,
        cast=cast,
        wire=reading.wire,
        spark_type=reading.spark_type,
        guard=reading.guard,
    )


def parse_moment(text: str) -> dt.datetime | None:
    """``2020-01-31 10:00:00.5`` with or without an offset; None for other texts, and for more than six digits."""
    found = _MOMENT.fullmatch(text.strip())
    if found is None:
        return None
    day, time, fraction, hours, minutes = found.groups()
    offset = "" if hours is None and not text.strip().endswith("Z") else f"{hours or '+00'}:{minutes or '00'}"
    try:
        return dt.datetime.fromisoformat(f"{day}T{time}.{(fraction or '').ljust(6, '0')}{offset}")
    except ValueError:
        return None


def _to_scalar(value: str | None, kind: WatermarkType) -> Scalar | None:
    if value is None:
        return None
    try:
        match kind:
            case WatermarkType.LONG:
                return int(value)
            case WatermarkType.TIMESTAMP | WatermarkType.LOCAL_TIMESTAMP:
                moment = parse_moment(value)
                if moment is not None:
                    return moment.replace(tzinfo=dt.UTC if kind is WatermarkType.TIMESTAMP else None)
            case WatermarkType.DATE:
                return dt.date.fromisoformat(value)
            case WatermarkType.STRING:
                return value
            case _:
                pass
    except ValueError:
        pass
    raise RejectedError(
        f"{value!r} can't be a position of type {kind}",
        field="watermark.column",
        hint="Leave such rows out by where, or name another column.",
    )
