"""The source options of every job, and the lookup of the options of one kind of source.

The options of a kind (below ``source:``, and in datasets) are in the kind's own folder. A job is checked against the
options of the kind that its ``source.type`` names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import Field, SerializeAsAny
from pydantic_core import InitErrorDetails, ValidationError

from gobblin_assets.extensions import Extensions
from gobblin_assets.spec.kind_options import KindOptions, keep_errors
from gobblin_assets.spec.spec_model import SpecModel

DEFAULT_TYPE: Final = "jdbc"
"""The kind of source of jobs without ``source.type``."""


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
    """The moment at which the job's sensor for new data asks for a run of a log."""

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
    def variables(self) -> str:
        """How the variables of its connections go on after GOBBLIN_."""
        return self.name.upper()

    @property
    def is_log(self) -> bool:
        return issubclass(self.spec, LogSourceSpec)


SOURCES: Final = Extensions[SourceOptions](
    group="gobblin_assets.sources",
    noun="kind of source",
    option="source.type",
    accepts=lambda found: isinstance(found, SourceOptions),
    built_in={
        "jdbc": "gobblin_assets.sources.jdbc.jdbc_kind:JDBC",
        "kafka": "gobblin_assets.sources.kafka.kafka_kind:KAFKA",
        "postgres_log": "gobblin_assets.sources.postgres_log.postgres_log_kind:POSTGRES_LOG",
        "spark_stream": "gobblin_assets.sources.spark_stream.spark_stream_kind:SPARK_STREAM",
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


SOURCE_OPTIONS: Final = KindOptions(SOURCES, SourceSpec, DEFAULT_TYPE)


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


def list_dataset_options() -> list[type[SpecModel]]:
    """The models of what datasets may say to some kind of source alone."""
    return [kind.dataset_options for kind in SOURCE_OPTIONS.list_kinds() if kind.dataset_options is not None]


def list_source_specs() -> list[type[SourceSpec]]:
    """The models of what a source may be."""
    return [kind.spec for kind in SOURCE_OPTIONS.list_kinds()]


AnySource = Annotated[SerializeAsAny[SourceSpec], SOURCE_OPTIONS]
