"""Converters: an ordered chain of DataFrame → DataFrame, lazy from its beginning to its end.

No link runs a query: Spark analyses each one, so that a mistake is refused before anything is read. Only the
DataFrame API is used, so that a chain means the same in process, on a cluster and on Spark Connect.

Only precision can be lost silently. A cast of a value that does not fit (text that is no number, an overflow, an
invalid date) fails the task. For that, sessions run in Spark's ANSI mode, and a chain with a cast or an expression
refuses a session without it. A cast to a type with fewer digits rounds, and a cast from a time to a date cuts, as ANSI
SQL says; to get NULL instead of a failure, write ``sql: {column: try_cast(column AS type)}``.

Dead letters (``row_quality`` says which rows these are) get through unseen and none is lost. If a frame may have dead
letters, casts and expressions are evaluated for the other rows only, ``where`` keeps the dead letters, and every link
carries their hidden columns along. An expression that makes several rows of one would see dead letters too, so it is
refused: write a function for it. A function is given the other rows only, without hidden columns, so it may join,
explode and aggregate; the price is a second read of the source, for the dead letters alone.

A job names Python functions, which run in the process that reads the sources' passwords. So its author may use the
deployment owner's own code, but not every installed package: by default a module must be on Python's path outside the
standard library and installed packages. GOBBLIN_FUNCTION_MODULES names the allowed modules and packages instead, joined
by commas; then no others are allowed.
"""

import importlib
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.model.column_names import name_key
from gobblin_assets.rows.column_names import require_column, require_distinct_columns
from gobblin_assets.rows.columns import analysed_schema, named, refuse_expression
from gobblin_assets.rows.hidden_columns import DEAD_LETTER_COLUMN
from gobblin_assets.rows.row_quality import dead_letter_columns, find_hidden_columns, is_dead_letter
from gobblin_assets.spec.job_spec import ConverterSpec

MODULES_VARIABLE: Final = "GOBBLIN_FUNCTION_MODULES"


def require_allowed_module(
    module: str, *, label: str, field: str, environment: Mapping[str, str] | None = None
) -> None:
    """RejectedError, which says how to allow it, unless functions of ``module`` may be called. Nothing is imported."""
    variables = os.environ if environment is None else environment
    named = variables.get(MODULES_VARIABLE)
    if named is None:
        if _is_own(module.partition(".")[0]):
            return
        found = "is a part of Python, or of an installed package"
    else:
        allowed = [each.strip() for each in named.split(",") if each.strip()]
        if any(module == each or module.startswith(f"{each}.") for each in allowed):
            return
        found = f"is not among {', '.join(allowed) or 'those (there are none)'}"
    raise RejectedError(
        f"{label}: {module} {found}",
        field=field,
        hint=f"The owner of this deployment allows it by {MODULES_VARIABLE}={module} (more are joined by commas).",
    )


def _is_own(top: str) -> bool:
    """Whether the top-level package or module is outside the places of installed packages.

    True also for a module that does not exist: its import gives the error.
    """
    if top in sys.stdlib_module_names or top in sys.builtin_module_names:
        return False
    found = PathFinder.find_spec(top)
    if found is None:
        return True
    places = [*(found.submodule_search_locations or ()), *([found.origin] if found.origin else ())]
    return not any(Path(place).resolve().is_relative_to(installed) for place in places for installed in _installed())


def _installed() -> list[Path]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return [Path(sysconfig.get_path(name)).resolve() for name in names]


FLATTEN_DEPTH_MAX: Final = 50

_FUNCTION: Final = re.compile(r"([\w.]+):(\w+)")
_ANSI: Final = "spark.sql.ansi.enabled"


def convert(frame: DataFrame, links: Sequence[ConverterSpec], *, dataset: str) -> DataFrame:
    """Apply the links in order. RejectedError names dataset, link (counted from 0), column and what there is."""
    if any(link.cast or link.sql or link.where for link in links):
        _require_ansi(frame, dataset)
    hidden = find_hidden_columns(frame.columns)
    if dead_letter_columns(hidden) and any(link.function for link in links):
        rows = frame.where(~is_dead_letter()).drop(*hidden)
        letters = frame.where(is_dead_letter()).select(*(named(name) for name in hidden))
        return _apply(rows, links, (), dataset).unionByName(letters, allowMissingColumns=True)
    return _apply(frame, links, hidden, dataset)


def _apply(frame: DataFrame, links: Sequence[ConverterSpec], hidden: Sequence[str], dataset: str) -> DataFrame:
    for number, link in enumerate(links):
        frame = _Link(dataset, number, link, hidden).apply(frame)
    return frame


class _Link:
    """One link, with how its errors name it."""

    def __init__(self, dataset: str, number: int, spec: ConverterSpec, hidden: Sequence[str]) -> None:
        chosen = [name for name, value in spec if value is not None]
        if len(chosen) != 1:
            raise RejectedError(
                f"dataset {dataset!r}: expected exactly one converter, found {', '.join(chosen) or 'none'}",
                field=f"converters[{number}]",
                hint="Make each a link of its own: they run in order.",
            )
        self._spec = spec
        self._hidden = hidden
        self._may_be_dead = DEAD_LETTER_COLUMN in hidden
        self._kind = chosen[0]
        self._field = f"converters[{number}].{chosen[0]}"
        self._label = f"dataset {dataset!r}"

    def apply(self, frame: DataFrame) -> DataFrame:
        methods: dict[str, Callable[[DataFrame], DataFrame]] = {
            "select": self._select,
            "drop": self._drop,
            "rename": self._rename,
            "cast": self._cast,
            "sql": self._sql,
            "where": self._where,
            "flatten": self._flatten,
            "function": self._call,
        }
        available = self._visible(frame)
        try:
            converted = methods[self._kind](frame)
            schema = analysed_schema(converted)
        except AnalysisException as error:
            field = self._find_culprit(frame)
            raise refuse_expression(error, label=self._label, field=field, available=available) from error
        if find_hidden_columns(schema.names) != tuple(self._hidden):
            raise RejectedError(
                f"{self._label}: a column would be called {DEAD_LETTER_COLUMN!r}, which marks dead letters",
                field=self._field,
                hint="Give it another name.",
            )
        if len(schema.names) == len(self._hidden):
            raise RejectedError(
                f"{self._label}: no column is left", field=self._field, hint=f"There were {', '.join(available)}."
            )
        require_distinct_columns(schema.names, label=self._label, field=self._field)
        return converted

    def _find_culprit(self, frame: DataFrame) -> str:
        """The path of the expression that Spark refused, where there are several; it is looked for only then."""
        casts, expressions = self._spec.cast or {}, self._spec.sql or {}
        for name in (*casts, *expressions):
            try:
                column = f.expr(expressions[name]) if name in expressions else named(name).cast(casts[name])
                analysed_schema(frame.select("*", column))
            except AnalysisException:
                return f"{self._field}.{name}"
        return self._field

    def _visible(self, frame: DataFrame) -> list[str]:
        return [name for name in frame.columns if name not in self._hidden]

    def _beside_hidden(self, frame: DataFrame, columns: Iterable[Column]) -> DataFrame:
        return frame.select(*columns, *(named(name) for name in self._hidden))

    def _of_rows(self, expression: Column) -> Column:
        """The expression for rows that are no dead letters; NULL for dead letters."""
        return f.when(~is_dead_letter(), expression) if self._may_be_dead else expression

    def _require(self, frame: DataFrame, name: str) -> str:
        return require_column(self._visible(frame), name, label=self._label, field=self._field)

    def _select(self, frame: DataFrame) -> DataFrame:
        return self._beside_hidden(frame, (named(self._require(frame, name)) for name in self._spec.select or ()))

    def _drop(self, frame: DataFrame) -> DataFrame:
        dropped = {self._require(frame, name) for name in self._spec.drop or ()}
        return frame.select(*(named(name) for name in frame.columns if name not in dropped))

    def _rename(self, frame: DataFrame) -> DataFrame:
        """All at once, so that two columns can exchange their names."""
        new_names = {self._require(frame, old): new for old, new in (self._spec.rename or {}).items()}
        require_distinct_columns(
            [new_names.get(name, name) for name in frame.columns], label=self._label, field=self._field
        )
        return frame.select(*(named(name).alias(new_names.get(name, name)) for name in frame.columns))

    def _cast(self, frame: DataFrame) -> DataFrame:
        types = {self._require(frame, name): text for name, text in (self._spec.cast or {}).items()}
        return frame.select(
            *(self._of_rows(named(n).cast(types[n])).alias(n) if n in types else named(n) for n in frame.columns)
        )

    def _sql(self, frame: DataFrame) -> DataFrame:
        """Replaced columns stay in their place; new ones follow in the order they were written in."""
        columns: dict[str, Column] = {name: named(name) for name in self._visible(frame)}
        by_key = {name_key(name): name for name in columns}
        for name, expression in (self._spec.sql or {}).items():
            columns[by_key.get(name_key(name), name)] = self._of_rows(f.expr(expression)).alias(name)
        return self._beside_hidden(frame, columns.values())

    def _where(self, frame: DataFrame) -> DataFrame:
        condition = f.expr(self._spec.where or "")
        if self._may_be_dead:
            condition = f.when(is_dead_letter(), f.lit(True)).otherwise(condition)
        return frame.where(condition)

    def _flatten(self, frame: DataFrame) -> DataFrame:
        """A NULL struct becomes NULL columns; arrays and maps stay as they are, structs inside them too."""
        separator = self._spec.flatten or ""
        columns = [
            column
            for field in frame.schema.fields
            if field.name not in self._hidden
            for column in _leaves(named(field.name), field.name, field.dataType, separator, 0)
        ]
        require_distinct_columns([name for name, _column in columns], label=self._label, field=self._field)
        return self._beside_hidden(frame, (column.alias(name) for name, column in columns))

    def _call(self, frame: DataFrame) -> DataFrame:
        function = self._find_function()
        try:
            result = function(frame)
        except (GobblinError, AnalysisException):
            raise
        except Exception as error:
            # The text of a user's error may hold data; only the cause keeps it, for debugging.
            raise RejectedError(
                f"{self._label}: {self._spec.function} raised {type(error).__name__}",
                field=self._field,
                hint="Look at the error's cause; the function gets a lazy DataFrame and returns one.",
            ) from error
        if not isinstance(result, DataFrame):
            raise RejectedError(
                f"{self._label}: {self._spec.function} returned a {type(result).__name__}",
                field=self._field,
                hint="It must return a Spark DataFrame.",
            )
        return result

    def _find_function(self) -> Callable[[DataFrame], object]:
        written = self._spec.function or ""
        parts = _FUNCTION.fullmatch(written)
        if parts is None:
            raise RejectedError(
                f"{self._label}: expected package.module:name, found {written!a}",
                field=self._field,
                hint="Write a colon between the module and the function.",
            )
        require_allowed_module(parts[1], label=self._label, field=self._field)
        try:
            module = importlib.import_module(parts[1])
        except ImportError as error:
            raise RejectedError(
                f"{self._label}: can't import {parts[1]} ({error})",
                field=self._field,
                hint="Install its package where the run's Python finds it.",
            ) from error
        function = getattr(module, parts[2], None)
        if not callable(function):
            found = "nothing of that name" if function is None else f"a {type(function).__name__}"
            raise RejectedError(
                f"{self._label}: expected a function {parts[2]} in {parts[1]}, found {found}",
                field=self._field,
                hint="Name a function that takes a DataFrame and returns one.",
            )
        return function  # type: ignore[no-any-return]  # callable is all that can be known before the call


def _leaves(column: Column, name: str, data_type: t.DataType, separator: str, depth: int) -> list[tuple[str, Column]]:
    if not isinstance(data_type, t.StructType) or depth >= FLATTEN_DEPTH_MAX:
        return [(name, column)]
    return [
        leaf
        for field in data_type.fields
        for leaf in _leaves(
            column.getField(field.name), f"{name}{separator}{field.name}", field.dataType, separator, depth + 1
        )
    ]


def _require_ansi(frame: DataFrame, dataset: str) -> None:
    if str(frame.sparkSession.conf.get(_ANSI)).lower() != "true":
        raise RejectedError(
            f"dataset {dataset!r}: its converters need ANSI mode, in which no value is lost silently; it is off",
            field=f"spark.conf.{_ANSI}",
            hint="Set it to true (Spark's own default), or leave it out.",
        )
