"""The source options of every job, and the lookup of the options of one kind of source.

The options of a kind (below ``source:``, and in datasets) are in the kind's own folder. A job is checked against the
options of the kind that its ``source.type`` names.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Final, cast

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, SerializeAsAny
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import (
    ErrorDetails,
    InitErrorDetails,
    PydanticCustomError,
    ValidationError,
    core_schema,
)

from gobblin_assets.errors import RejectedError
from gobblin_assets.extensions import Extensions
from gobblin_assets.spec.meant_words import OF_CONNECTIONS
from gobblin_assets.spec.spec_model import SpecModel

DEFAULT_TYPE: Final = "jdbc"
"""The kind of source of jobs without ``source.type``."""

SOURCE_KIND_ERROR: Final = "source_kind"
"""Pydantic's error for a kind that there is none of; its context has ``said`` and ``hint``."""


UNKNOWN_OPTION: Final = "unknown_option"
"""Pydantic's error for an option that the source's kind does not have; its context has ``known`` and ``hint``."""


class SourceSpec(SpecModel):
    """Datasets of one connection. Each kind of source has a model of its own below this one, with its ``type``."""

    type: str
    connection: str = Field(description="Name of a connection resource.")
    include: tuple[str, ...] = Field((), description="Patterns of names, from discovery.")
    exclude: tuple[str, ...] = ()

    @property
    def packs_by_rate(self) -> bool:
        """Whether WorkUnits are packed by the rates at which they must be read."""
        return False


class NewDataSpec(SpecModel):
    """When the job's sensor for new data asks for a run of a log."""

    running: bool = Field(False, description="Whether the sensor runs from the start; otherwise a person turns it on.")
    interval_s: int = Field(30, ge=5, description="How often it looks, at most.")
    records_min: int = Field(1, ge=1, description="A log with fewer new positions than this waits for more.")
    wait_s_max: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="The longest wait for records_min; default: no limit."
    )


class LogSourceSpec(SourceSpec):
    """A source whose datasets are logs: they have positions of their own, every run appends, streams follow them."""

    records_per_run_max: int | None = Field(
        None, ge=1, description="Positions of all logs in one run, shared out fairly; the rest follows in the next."
    )
    new_data: NewDataSpec = NewDataSpec()

    @property
    def is_one_stream(self) -> bool:
        """Whether its datasets come together, in a stream that one worker of a sink follows, and no run."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of a job for one kind of source.

    ``name``: the value of ``source.type``. ``noun``: the word for a dataset at the source, such as table; a dataset's
    option with this name says which one is read. ``dataset_options``: further options of a dataset. ``refused``:
    options of a dataset that this kind does not have, each with the alternative.
    """

    name: str
    noun: str
    spec: type[SourceSpec]
    dataset_options: type[SpecModel] | None = None
    refused: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def is_log(self) -> bool:
        return issubclass(self.spec, LogSourceSpec)


SOURCES: Final = Extensions[SourceOptions](
    group="gobblin_assets.sources",
    noun="kind of source",
    option="source.type",
    accepts=lambda found: isinstance(found, SourceOptions),
    built_in={
        "jdbc": "gobblin_assets.sources.jdbc.kind:JDBC",
        "kafka": "gobblin_assets.sources.kafka.kind:KAFKA",
        "postgres_log": "gobblin_assets.sources.postgres_log.kind:POSTGRES_LOG",
        "spark_stream": "gobblin_assets.sources.spark_stream.kind:SPARK_STREAM",
    },
    meant={
        **dict.fromkeys(("postgres", "postgresql"), "jdbc (its tables) or postgres_log (their changes)"),
        **dict.fromkeys(("cdc", "debezium", "logical_replication", "wal"), "postgres_log"),
        **dict.fromkeys(
            ("mysql", "mariadb", "oracle", "sqlserver", "mssql", "sqlite", "duckdb", "db2", "sql", "database", "table"),
            "jdbc",
        ),
        **dict.fromkeys(("topic", "topics", "redpanda"), "kafka"),
        **dict.fromkeys(("file", "files", "folder", "s3", "gs", "hdfs", "sftp", "distcp"), "a copy (kind: distcp)"),
    },
)


def read_source(written: object) -> object:
    """The ``source`` of a job by the model of its kind. For pydantic, whose errors name places within it."""
    if isinstance(written, SourceSpec) or not isinstance(written, Mapping):
        return written
    name = written.get("type", DEFAULT_TYPE)
    try:
        kind = SOURCES.get(name if isinstance(name, str) else "")
    except RejectedError as error:
        raise _refuse(("type",), name, error) from None
    try:
        return kind.spec.model_validate(written)
    except ValidationError as error:
        problems = [_know_options(each, kind, written) for each in keep_errors(error)]
        raise ValidationError.from_exception_data("SourceSpec", problems) from None


def _know_options(problem: InitErrorDetails, kind: SourceOptions, written: Mapping[str, object]) -> InitErrorDetails:
    """The same; of an option that the kind does not have, with those that it has, or with the variable to set."""
    location = problem.get("loc", ())
    if problem["type"] != "extra_forbidden" or len(location) != 1:
        return problem
    name, connection = str(location[0]), written.get("connection")
    hint = ""
    if name in OF_CONNECTIONS:
        shown = connection.upper() if isinstance(connection, str) and connection.isidentifier() else "<CONNECTION>"
        variable = f"GOBBLIN_{kind.name.upper()}_{shown}_…"
        hint = f"How a connection is reached is never in a job: it is in variables {variable} of the environment."
    said = PydanticCustomError(
        UNKNOWN_OPTION, "{said}", {"said": "is not an option", "known": sorted(kind.spec.model_fields), "hint": hint}
    )
    return InitErrorDetails(type=said, loc=location, input=problem["input"])


def read_dataset_options(given: Mapping[str, object]) -> tuple[dict[str, object], list[InitErrorDetails]]:
    """Options that not every dataset has, each by the model of the kind of source that has it; and what is wrong."""
    read: dict[str, object] = {}
    problems: list[InitErrorDetails] = []
    models = list_dataset_options() if given else []
    for name, value in given.items():
        model = next((each for each in models if name in each.model_fields), None)
        if model is None:
            problems.append(InitErrorDetails(type="extra_forbidden", loc=(name,), input=value))
            continue
        try:
            read[name] = getattr(model.model_validate({name: value}), name)
        except ValidationError as error:
            problems += keep_errors(error)
    return read, problems


def keep_errors(error: ValidationError) -> list[InitErrorDetails]:
    """What pydantic found, to be raised again together with something else."""
    return [
        InitErrorDetails(type=_type_of(each), loc=each["loc"], input=each["input"], ctx=each.get("ctx", {}))
        for each in error.errors()
    ]


def _type_of(found: ErrorDetails) -> Any:
    """Pydantic makes errors of its own kinds by name, and takes those of others as objects."""
    if "url" in found:
        # Only pydantic's own have a page.
        return found["type"]
    # A template takes no text as it is; what is shown is made of the context.
    return PydanticCustomError(cast("Any", found["type"]), "{said}", found.get("ctx", {}))


def list_dataset_options() -> list[type[SpecModel]]:
    """The models of what datasets may say to some kind of source alone."""
    return [kind.dataset_options for kind in list_kinds() if kind.dataset_options is not None]


def list_source_specs() -> list[type[SourceSpec]]:
    """The models of what a source may be."""
    return [kind.spec for kind in list_kinds()]


def list_kinds() -> Iterator[SourceOptions]:
    for name in SOURCES.list_names():
        # A package that can't be loaded is refused where a job names its kind.
        with suppress(RejectedError):
            yield SOURCES.get(name)


def _refuse(location: tuple[str, ...], value: object, error: RejectedError) -> ValidationError:
    said = PydanticCustomError(
        SOURCE_KIND_ERROR, "{said}", {"said": error.message.removeprefix(f"{error.field}: "), "hint": error.hint or ""}
    )
    return ValidationError.from_exception_data("SourceSpec", [InitErrorDetails(type=said, loc=location, input=value)])


class _OfItsKind:
    """The annotation of a source: read by ``read_source``, and shown as any of the kinds that there are."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(read_source, handler(source))

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [_show_kind(handler(spec.__pydantic_core_schema__)) for spec in list_source_specs()]}


def _show_kind(schema: JsonSchemaValue) -> JsonSchemaValue:
    """Each kind's model has its ``type`` by default; of a job without one, only one kind is meant."""
    written = schema.get("properties", {}).get("type", {})
    if written.get("default") in (None, DEFAULT_TYPE):
        return schema
    kept = {name: value for name, value in written.items() if name != "default"}
    return {**schema, "properties": {**schema["properties"], "type": kept}}


AnySource = Annotated[SerializeAsAny[SourceSpec], _OfItsKind]
