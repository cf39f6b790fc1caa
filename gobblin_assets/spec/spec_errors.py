"""Errors of pydantic in the words of this product: one RejectedError that names every field.

Words of other products for options and their values are known: a message offers the word that was meant, or says where
an option belongs.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gobblin_assets.errors import RejectedError
from gobblin_assets.spec.destination_kind import IntoSpec, kind_of_rows, list_into_specs
from gobblin_assets.spec.job_spec import DatasetSpec
from gobblin_assets.spec.kind_options import UNKNOWN_KIND, UNKNOWN_OPTION
from gobblin_assets.spec.source_spec import (
    SourceSpec,
    list_dataset_options,
    list_source_specs,
)
from gobblin_assets.spec.spec_model import REFUSED

MEANT_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        **dict.fromkeys(("name", "id", "dataset"), ("urn", "job")),
        **dict.fromkeys(
            ("cursor", "cursor_field", "cursor_column", "incremental", "incremental_column"), ("watermark",)
        ),
        **dict.fromkeys(("key", "keys", "pk", "primary_keys", "unique_key"), ("primary_key",)),
        **dict.fromkeys(("dest", "target", "output", "path", "root", "sink_path"), ("destination",)),
        **dict.fromkeys(("tables", "topics", "streams", "collections"), ("datasets",)),
        **dict.fromkeys(("mode", "load", "load_type", "strategy", "sync_mode"), ("extract",)),
        **dict.fromkeys(("filter", "condition", "query"), ("where",)),
        **dict.fromkeys(("transform", "transforms", "transformations", "columns_map"), ("converters",)),
        **dict.fromkeys(("partition", "partitioning"), ("partitions",)),
        **dict.fromkeys(("workers", "threads", "concurrency"), ("parallelism",)),
        **dict.fromkeys(("decoder", "format", "deserializer"), ("value",)),
        **dict.fromkeys(("lag", "lookback", "overlap"), ("late_window",)),
        **dict.fromkeys(("field", "by"), ("column",)),
        "timezone": ("zone",),
        "tz": ("zone",),
    }
)
"""Options by other names for them. One that is not known where the word stands is not offered."""

ELSEWHERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("schedule", "cron", "interval"),
            "A job runs when Dagster's schedules, sensors or your cron start it: take it out.",
        ),
        **dict.fromkeys(
            ("owners", "owner"), "Owners are in Dagster: `translation: {owners: [team:data]}` of a component."
        ),
        **dict.fromkeys(("retries", "max_retries"), "Write retry: {task_tries_max: 3}."),
        **dict.fromkeys(("spark", "spark_conf", "spark_config"), "Settings of Spark are in GOBBLIN_SPARK_CONF."),
    }
)
"""Options that no job has, and what does it instead."""

MEANT_VALUES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("full", "full_refresh", "full_table", "replace", "overwrite", "snapshot", "truncate"), "snapshot_only"
        ),
        **dict.fromkeys(("incremental", "append", "upsert", "merge", "delta"), "append_only"),
        **dict.fromkeys(("datetime", "timestamptz", "time", "timestamp_tz"), "timestamp"),
        **dict.fromkeys(("int", "integer", "bigint", "number", "numeric", "id"), "long"),
        **dict.fromkeys(("text", "varchar", "uuid"), "string"),
        **dict.fromkeys(("drop", "quarantine", "reject"), "err_file"),
        **dict.fromkeys(("warn", "ignore"), "optional"),
        **dict.fromkeys(("error", "abort"), "fail"),
        **dict.fromkeys(("day", "date"), "daily"),
        **dict.fromkeys(("true", "yes", "on"), "ours"),
        **dict.fromkeys(("false", "no"), "off"),
        "month": "monthly",
        "week": "weekly",
        "hour": "hourly",
        "uncompressed": "none",
        "gz": "gzip",
        "per_partition": "multi_run",
    }
)
"""Values by other words for them. One that the option does not take is not offered."""

MAIN_OPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "datasets": "urn",
        "partitions": "kind",
        "retry": "task_tries_max",
        "trigger": "marker",
        "watermark": "column",
    }
)
"""Groups of options, each with the one that a person may have written in place of the group."""


PROBLEMS_SHOWN_MAX: Final = 10
VALUE_SHOWN_LENGTH_MAX: Final = 80

# Where somebody may have put a password: nothing that was found there is repeated.
_MAY_HOLD_SECRETS: Final = frozenset({"source", "destination", "events", "passphrase_env"})

_TAGS: Final = frozenset({"union_tag_invalid", "union_tag_not_found"})
"""Of groups of options of which one option says what the others are."""

_UNKNOWN: Final = frozenset({"extra_forbidden", UNKNOWN_OPTION})
_GROUPS: Final = frozenset({"model_type", "model_attributes_type", "dict_type", "mapping_type"})
_BOUNDS: Final = MappingProxyType(
    {
        "greater_than_equal": ("ge", "a number of at least {}", "Write {} or more."),
        "greater_than": ("gt", "a number of more than {}", "Write a larger one."),
        "less_than_equal": ("le", "a number of at most {}", "Write {} or less."),
        "less_than": ("lt", "a number of less than {}", "Write a smaller one."),
    }
)
_NAME: Final = re.compile(r"\^\[A-Za-z0-9_\]\{1,(\d+)\}\$")
_NUMBERS: Final = MappingProxyType(
    {
        "float_parsing": "a number",
        "float_type": "a number",
        "int_parsing": "a whole number",
        "int_from_float": "a whole number",
        "int_type": "a whole number",
    }
)
# The unit of an option by a part of its name.
_UNITS: Final = MappingProxyType(
    {
        "_bytes_": "a number of bytes, such as 1073741824, or 1e9",
        "bytes_per_s_": "a number of bytes, such as 50000000",
        "_fraction_": "a share, such as 0.05",
        "_hours_": "a number of hours, such as 24",
        "_per_s_": "a number for each second, such as 100",
        "_s_": "a number of seconds, such as 600",
        "late_window_": "a number, such as 600 (seconds, of a column of times)",
    }
)

_Model = TypeVar("_Model", bound=BaseModel)

Location = Sequence[int | str]


def refuse(error: ValidationError, model: type[BaseModel]) -> RejectedError:
    """One error for all that is wrong; its ``field`` is the first one's path, such as ``datasets[0].urn``.

    Unknown options come first: a misspelt one also shows up as a missing one.
    """
    details = sorted(error.errors(include_url=False), key=lambda d: d["type"] not in _UNKNOWN)
    problems: dict[str, tuple[str, str]] = {}
    for detail in details:
        location = _within(model, detail["loc"])
        if detail["type"] == REFUSED and detail["ctx"]["option"]:
            location = [*location, detail["ctx"]["option"]]
        if detail["type"] in _TAGS:
            location = [*location, detail["ctx"]["discriminator"].strip("'")]
        problems.setdefault(show_path(location), _explain(detail, location, model))
    (field, (message, hint)), *others = problems.items()
    shown = [f"{path}: {said} {fix}".strip() for path, (said, fix) in others[:PROBLEMS_SHOWN_MAX]]
    if len(others) > PROBLEMS_SHOWN_MAX:
        shown.append(f"{len(others) - PROBLEMS_SHOWN_MAX} more")
    hint = "\nAlso ".join((hint, *shown))
    return RejectedError(message, field=field, hint=hint)


def read_extension_options(model: type[_Model], options: Mapping[str, object], *, within: str = "") -> _Model:
    """The options of a part that packages may offer, as a model's values.

    RejectedError names the option, behind ``within``, such as ``finder.pattern``; without it, the option alone.
    """
    try:
        return model.model_validate(options)
    except ValidationError as error:
        refused = refuse(error, model)
        message = refused.message.removeprefix(f"{refused.field}: ")
        raise RejectedError(message, field=f"{within}{refused.field}", hint=refused.hint) from None


def into_of(job: IntoSpec, dataset: Mapping[str, object] | None, where: str) -> IntoSpec:
    """The destination of a dataset's rows: as its job says, and what the dataset says otherwise.

    ``where``: the dataset's ``into`` in the job file. RejectedError names the option and the fix.
    """
    if not dataset:
        return job
    kind = kind_of_rows(job)
    for name in dataset:
        if name not in kind.of_datasets:
            raise RejectedError(
                f"expected an option of one dataset, found {name!a}",
                field=f"{where}.{name}",
                hint=f"A dataset may say {', '.join(sorted(kind.of_datasets))}; the rest is said by the job's `into`.",
            )
    return read_extension_options(kind.spec, {**job.model_dump(exclude_unset=True), **dataset}, within=f"{where}.")


def show_path(location: Location) -> str:
    """``("datasets", 0, "urn")`` as ``datasets[0].urn``."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.removeprefix(".") or "job"


def suggest(word: str, known: Sequence[str]) -> str:
    """A sentence that offers what may have been meant, or lists what there is."""
    meant = [name for name in MEANT_OPTIONS.get(word.lower(), ()) if name in known]
    close = meant or difflib.get_close_matches(word, known, n=3)
    if close:
        return f"Did you mean {' or '.join(map(repr, close))}?"
    return f"Known: {', '.join(sorted(known))}."


def _explain(detail: ErrorDetails, location: Location, model: type[BaseModel]) -> tuple[str, str]:
    if detail["type"] == "extra_forbidden":
        *parent, name = location
        return "is not an option.", _find_place(model, parent, str(name))
    if detail["type"] == UNKNOWN_OPTION:
        return "is not an option.", detail["ctx"]["hint"] or suggest(str(location[-1]), detail["ctx"]["known"])
    if detail["type"] in {UNKNOWN_KIND, REFUSED}:
        return f"{detail['ctx']['said']}.", detail["ctx"]["hint"]
    if detail["type"] == "union_tag_invalid":
        kinds, found = detail["ctx"]["expected_tags"], detail["ctx"]["tag"]
        return f"expected {kinds.replace(', ', ' or ')}; found {_show(found, location)}.", "Write one of these."
    if detail["type"] in {"missing", "union_tag_not_found"}:
        return "is missing.", "Add it."
    if detail["type"] in {"tuple_type", "list_type"}:
        return f"expected a list; found {_show(detail['input'], location)}.", _show_as_list(detail["input"], location)
    if detail["type"] in _GROUPS:
        return f"expected a group of options; found {_show(detail['input'], location)}.", _show_as_group(
            detail["input"], location, model
        )
    if detail["type"] == "string_too_short" and not detail["input"]:
        return "expected a text, found an empty one.", "Write it, or leave it out."
    found = _show(detail["input"], location)
    return f"expected {_expected(detail)}; found {found}.", _hint(detail)


def _find_place(model: type[BaseModel], parent: Location, name: str) -> str:
    """Where an option that is not known at its place belongs, or what may have been meant."""
    if not parent and name in _options_at(model, ["datasets", 0]):
        return "It is an option of a dataset: write it there, or below defaults for all datasets."
    if parent and name in _options_at(model, []):
        return "It is an option of the job: write it beside datasets."
    known = sorted(_options_at(model, parent))
    return ELSEWHERE[name] if name in ELSEWHERE and name not in known else suggest(name, known)


def _expected(detail: ErrorDetails) -> str:
    kind = detail["type"]
    if kind in _BOUNDS:
        bound, said, _fix = _BOUNDS[kind]
        return said.format(_plain(detail["ctx"][bound]))
    if kind == "string_pattern_mismatch" and (name := _NAME.fullmatch(detail["ctx"]["pattern"])):
        return f"1 to {name[1]} letters, digits or underscores"
    if kind.startswith("bool_"):
        return "true or false"
    if kind == "string_type":
        return "a text"
    if kind.startswith(("date_", "datetime_")):
        return "a date"
    if kind in _NUMBERS:
        return _NUMBERS[kind]
    return detail["msg"].removeprefix("Input should be ").removeprefix("Value error, ")


def _hint(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    if "hint" in context:
        return str(context["hint"])
    options = str(context.get("expected", "")).replace("'", "").replace(" or ", ", ").split(", ")
    value = detail["input"]
    if detail["type"] in _BOUNDS:
        bound, _said, fix = _BOUNDS[detail["type"]]
        return fix.format(_plain(context[bound]))
    if detail["type"] in {"enum", "literal_error"} and isinstance(value, str):
        if (meant := MEANT_VALUES.get(value.lower())) in options:
            return f"Did you mean {meant!r}?"
        close = difflib.get_close_matches(value, options, n=1)
        return f"Did you mean {close[0]!r}?" if close else "Write one of these."
    if detail["type"].startswith(("date_", "datetime_")):
        return "Write it as 2026-01-31."
    if detail["type"] in _NUMBERS:
        name = str(detail["loc"][-1])
        return next((f"Write {said}." for part, said in _UNITS.items() if part in f"{name}_"), "Write it in digits.")
    if detail["type"] == "string_type":
        return "Write one text." if isinstance(value, Mapping | Sequence | None) else "Write it in quotes, as text."
    if detail["type"] == "string_pattern_mismatch" and _NAME.fullmatch(context["pattern"]):
        return "Take the other characters out."
    return "Write one of these." if detail["type"].startswith("bool_") else "Correct it."


def _plain(bound: float) -> str:
    """Without a fraction of nothing."""
    return f"{bound:g}" if abs(bound) < 1_000_000 else f"{bound:.0f}"


def _show_as_group(value: object, location: Location, model: type[BaseModel]) -> str:
    """How the options may be written. A group stands in place of a list's member, or of an option."""
    named = str(location[-1] if not isinstance(location[-1], int) else location[-2]) if location else ""
    if named == "source" and not any(isinstance(part, int) for part in location):
        return "Write {connection: NAME}; of a copy of files, write kind: distcp as well."
    main = MAIN_OPTIONS.get(named)
    if main is not None and isinstance(value, str) and _is_shown(value, location):
        return f"Write {{{main}: {value}}}."
    known = sorted(_options_at(model, location))
    return f"Write its options, such as {{{main or known[0]}: …}}." if main or known else "Write name: value."


def _show_as_list(value: object, location: Location) -> str:
    if not isinstance(value, str) or not _is_shown(value, location):
        return "Write a list, such as [first, second]."
    parts = [part.strip() for part in value.split(",")]
    shown = ", ".join(f'"{part}"' for part in parts if part)
    return f"Write [{shown}]."


def _is_shown(value: str, location: Location) -> bool:
    return len(value) <= VALUE_SHOWN_LENGTH_MAX and not _MAY_HOLD_SECRETS.intersection(map(str, location))


def _show(value: object, location: Location) -> str:
    if _MAY_HOLD_SECRETS.intersection(map(str, location)):
        return "something else (not shown: it may hold a secret)"
    if isinstance(value, Mapping | BaseModel):
        return "a group of options"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    text = ascii(value)
    return text if len(text) <= VALUE_SHOWN_LENGTH_MAX else f"{text[:VALUE_SHOWN_LENGTH_MAX]}…"


def _within(model: type[BaseModel], location: tuple[int | str, ...]) -> list[int | str]:
    """``location`` without what pydantic adds behind a field for the members of a union."""
    models = {model}
    kept: list[int | str] = []
    for place, part in enumerate(location, 1):
        if isinstance(part, str) and not models:
            break
        if place < len(location) and isinstance(part, str) and not any(part in each.model_fields for each in models):
            continue
        kept.append(part)
        models = _models_below(models, part)
    return kept


def _options_at(model: type[BaseModel], location: Location) -> set[str]:
    models = {model}
    for part in location:
        models = _models_below(models, part)
    return {field.alias or name for each in models for name, field in each.model_fields.items()}


def _models_below(models: set[type[BaseModel]], part: int | str) -> set[type[BaseModel]]:
    if isinstance(part, int):
        return models
    annotations = [each.model_fields[part].annotation for each in models if part in each.model_fields]
    return {inner for annotation in annotations for inner in _models_in(annotation)}


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if get_origin(annotation) is Annotated:
        yield from _models_in(get_args(annotation)[0])
    elif annotation is SourceSpec:
        yield from list_source_specs()
    elif annotation is IntoSpec:
        yield from list_into_specs()
    elif annotation is DatasetSpec:
        yield DatasetSpec
        yield from list_dataset_options()
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in {Union, UnionType, tuple}:
        for argument in get_args(annotation):
            yield from _models_in(argument)
