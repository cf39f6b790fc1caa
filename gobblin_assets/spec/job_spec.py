"""The specification of a job, which the YAML component, Python programs and the command line all build.

Pydantic checks shapes; ``parse_job`` turns its errors into RejectedErrors that name the field, what was expected, what
was found, and the fix. No option holds a secret: a connection is a name that a resource resolves when a run starts.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from gobblin_assets.model.extract import ExtractType, OnNull
from gobblin_assets.model.policy import CommitPolicy
from gobblin_assets.model.urn import Role
from gobblin_assets.model.watermark import WatermarkType
from gobblin_assets.spec.destination_kind import AnyInto, IntoSpec
from gobblin_assets.spec.event_time_spec import EventTimeSpec
from gobblin_assets.spec.job_options import DatasetOptions, JobOptions
from gobblin_assets.spec.kind_options import keep_errors
from gobblin_assets.spec.source_spec import AnySource, list_dataset_options, read_dataset_options
from gobblin_assets.spec.spec_model import MIB, SpecModel, Whole, refused


class RollSpec(SpecModel):
    """The bounds of a lane's open, invisible files: they are closed and published at the first barrier behind any."""

    rows_max: Whole | None = Field(None, ge=1, description="So many rows are gathered.")
    bytes_max: Whole | None = Field(
        128 * MIB, ge=1, description="So many bytes are written; or, where Spark makes the rows, have come as records."
    )
    age_s: float | None = Field(
        10.0, ge=0, allow_inf_nan=False, description="The first row has waited so long; 0: at each barrier with rows."
    )


DAGSTER_OPTIONS: Final = frozenset({"workers", "worker_s", "lag_max", "bases"})
"""Of a sink: they say nothing of what a worker does to records."""


class BasesSpec(SpecModel):
    """The bases of a change log: its current rows are written as one, from which ``read_current`` goes on."""

    changes_min: int = Field(1_000_000, ge=1, description="Changes behind the last base that are worth a new one.")
    cron: Annotated[str, Field(pattern=r"^\s*\S+(\s+\S+){4}\s*$")] | None = Field(
        None, description="In Dagster, a schedule writes bases at these times (UTC). Default: by command, or by hand."
    )


class SinkSpec(SpecModel):
    """The sink of a job: several workers publish the job's logs at once, each exactly once."""

    lanes: int = Field(4, ge=1, le=256, description="Lanes of each dataset at first; later, `sink scale` says it.")
    every_s: float = Field(
        1.0,
        gt=0,
        allow_inf_nan=False,
        description="Barriers by time: a publication ends at one, so that this is the least wait.",
    )
    barriers: Literal["time", "log"] = Field(
        "time",
        description="time: each worker makes them. log: records with the header gobblin-epoch in every partition, so "
        "that an epoch is the same in all of them.",
    )
    alignment_s: float = Field(
        300.0, gt=0, allow_inf_nan=False, description="Barriers in the log: the longest wait for a partition's marker."
    )
    roll: RollSpec = RollSpec()
    format: Literal["parquet", "json", "csv"] = "parquet"
    into: AnyInto | None = Field(None, description="An older place of the job's own `into`.")
    bases: BasesSpec | None = Field(
        None,
        description="Change logs: when `gobblin-assets sink compact` writes the tables' current rows as a base.",
    )
    workers: int = Field(
        0,
        ge=0,
        le=256,
        description="In Dagster, the sink's sensor keeps so many workers alive, and starts runs for those that lack.",
    )
    worker_s: float = Field(
        3_600.0, gt=0, allow_inf_nan=False, description="How long such a run works, before another one follows it."
    )
    lag_max: int | None = Field(
        None,
        ge=0,
        description="In Dagster, the check sink_lag warns if more records of a dataset are not published; of a change "
        "log, if more bytes of the server's log are not.",
    )


RETIRE_GRACE_S: Final = 86_400.0
"""How long retired files stay by default, in seconds."""

WORK_UNIT_ROWS: Final = 1_000_000
"""The rows of a WorkUnit, where a job says nothing else."""


_UMASK_MAX: Final = 0o077


def _read_octal(value: object) -> object:
    """Read a text as octal: not every YAML reader takes 0o022 for a number."""
    if isinstance(value, str):
        try:
            value = int(value, 8)
        except ValueError:
            raise refused(f"expected digits from 0 to 7, found {value!a}", hint='Write "022".') from None
    if isinstance(value, int) and value > _UMASK_MAX:
        raise refused(f"expected at most 077, found {value:03o}: it takes rights from the owner", hint='Write "022".')
    return value


def _refuse_partial(value: object) -> object:
    """Refuse Gobblin's third policy, which publishes output of failed tasks; here it did the same as ``successful``."""
    if value == "partial":
        hint = "No source says how far a failed task came. Write successful, which publishes what partial published."
        raise PydanticCustomError("commit_policy", "full or successful", {"hint": hint})
    return value


class WatermarkSpec(SpecModel):
    """The column of positions of a dataset and its properties."""

    column: str
    type: WatermarkType | None = Field(None, description="Default: from the column's type at the source.")
    key_column: str | None = Field(None, description="Makes positions (column, key_column) pairs: composite.")
    zone: str = Field("UTC", description="The zone of a wall-clock column at the source (IANA name).")
    start: str | None = Field(None, description="Where the first run starts, inclusive. Default: everything.")
    commit_lag_s: float = Field(
        60.0, ge=0, description="Times: positions younger than this wait for the next run. In seconds."
    )
    late_window: float = Field(
        0.0, ge=0, description="How far below the watermark each run reads again: seconds for times, else a count."
    )
    on_null: OnNull = OnNull.FAIL


class ConverterSpec(SpecModel):
    """One link of the chain, exactly one of its fields set. Links run in order."""

    select: tuple[str, ...] | None = Field(None, description="Keep these columns, in this order.")
    drop: tuple[str, ...] | None = Field(None, description="Leave these columns out.")
    rename: dict[str, str] | None = Field(None, description="Old name to new name, all at once.")
    cast: dict[str, str] | None = Field(
        None, description="Column to Spark SQL type; a value that does not fit fails the task (rounding is allowed)."
    )
    sql: dict[str, str] | None = Field(
        None, description="New or replaced column to Spark SQL expression; each sees the columns before the link."
    )
    where: str | None = Field(None, description="Spark SQL condition; rows without it are left out, and counted.")
    flatten: str | None = Field(None, description="Struct columns become columns, joined by this separator.")
    function: str | None = Field(
        None, description="package.module:name of a DataFrame -> DataFrame function, of a module that is allowed."
    )


class RowPolicySpec(SpecModel):
    """A row passes when ``check`` is true; NULL counts as a failure."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,100}$")]
    check: str = Field(description="Spark SQL condition over the converted row.")
    on_failure: Literal["fail", "err_file", "optional"] = "fail"


class TaskPolicySpec(SpecModel):
    """A check of a whole dataset partition before the seal."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,100}$")]
    kind: Literal["row_count", "row_count_range", "schema_compatible"]
    min_row_count: int | None = None
    max_row_count: int | None = None
    range_fraction: float | None = Field(
        None, ge=0, description="row_count_range: |written + set aside - read| / read may be at most this."
    )
    blocking: bool = True


class QualitySpec(SpecModel):
    rows: tuple[RowPolicySpec, ...] = ()
    tasks: tuple[TaskPolicySpec, ...] = ()
    quarantine_fraction_max: float = Field(
        1.0, ge=0, le=1, description="More rows than this set aside by err_file policies fail the task."
    )
    dead_letter_fraction_max: float = Field(
        0.05, ge=0, le=1, description="More dead letters than this share (undecodable, no event time) fail the task."
    )
    dead_letter_count_max: int = Field(
        0,
        ge=0,
        description="This many are allowed in a publication whatever their share; a stream's publication may be small.",
    )
    samples: Literal["masked", "values", "none"] = Field(
        "masked",
        description="How three of the rows that fail a row policy are shown in logs, events and checks: by types and "
        "lengths instead of values, with values, or not at all.",
    )
    lag_max: int | None = Field(
        None,
        ge=0,
        description="Kafka: with more offsets than this unpublished, the check lag warns; default: no check.",
    )


class WriterSpec(SpecModel):
    """Parquet files and the directories that they go to."""

    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"] = "zstd"
    file_bytes_max: int = Field(512 * MIB, ge=1 * MIB, description="Aim for files no larger than this.")
    file_rows_max: int | None = Field(None, ge=1, description="A hard bound on the rows of a file.")
    partition_by: tuple[str, ...] = Field((), description="Columns that become directories.")
    time_column: str | None = Field(None, description="Time column that becomes a directory by ``time_pattern``.")
    time_pattern: str | None = Field(None, description="Spark date pattern, such as yyyy-MM-dd.")
    time_name: str = Field("time", description="Name of the directory column made by ``time_pattern``.")
    event_time: EventTimeSpec | None = Field(
        None, description="A directory by the event time, read from a column or from JSON."
    )


class SplitSpec(SpecModel):
    """The division of a read into WorkUnits, and their packing into MultiWorkUnits."""

    work_unit_rows: int | None = Field(
        None,
        ge=1,
        description="Aim for WorkUnits of this many rows. Default: 1,000,000; tables of Postgres are divided further "
        "if some processors, or slots of Spark's cluster, would read nothing.",
    )
    max_partitions: int = Field(
        20,
        ge=1,
        le=1000,
        description="At most this many WorkUnits for a dataset partition. If it is not given, a table that Spark reads "
        "on a cluster may have as many as the cluster runs tasks.",
    )
    max_multi_work_units: int = Field(8, ge=1, le=1000, description="At most this many tasks for a run.")
    task_rows_min: int = Field(
        2_000_000,
        ge=1,
        description="A dataset that is published as a whole is not divided into tasks of fewer rows than this.",
    )
    fetch_size_rows: int | None = Field(
        None,
        ge=1,
        description="Rows per round trip of the JDBC driver. Default: about 4 MiB in its memory, at most 10,000.",
    )


class SchemaChangeSpec(SpecModel):
    """The changes of the source's columns that are accepted.

    Added columns always are, and so are types that hold every value published before. A type that would lose a value of
    old or new files is always refused (docs/TYPES.md).
    """

    allow_dropped: bool = False
    allow_retyped: bool = Field(
        False,
        description="Also accept types that do not hold all old values, if a common type holds the values of both.",
    )


class PackerSpec(SpecModel):
    """The packing of WorkUnits into MultiWorkUnits (Gobblin: kafka.workunit.packer.type).

    ``single_level``: each watermark key goes where there is least. ``bi_level``: small datasets stay together.
    ``topic_grouping``: a MultiWorkUnit holds one dataset, up to a task's capacity, as far as
    ``split.max_multi_work_units`` leaves room. Loads and capacities are in the unit of the size estimator: WorkUnits,
    MB, seconds, or MB/s.
    """

    type: Literal["single_level", "bi_level", "topic_grouping"] = "bi_level"
    container_capacity: float = Field(
        10.0, gt=0, allow_inf_nan=False, description="topic_grouping: the load of a MultiWorkUnit."
    )
    capacity_strategy: Literal["min", "max", "mean", "median"] = Field(
        "median", description="topic_grouping by produce_rate: which of the rates of the topic's earlier tasks to use."
    )
    containers_min: int = Field(
        1, ge=1, le=1000, description="topic_grouping: groups are split until there are this many."
    )


class CompactionSpec(SpecModel):
    """The partitions that are rewritten with fewer, larger files."""

    files_min: int = Field(50, ge=2, description="Partitions with fewer files stay as they are.")
    file_bytes_target: int = Field(128 * MIB, ge=1, description="Aim for files of this size.")
    quiet_s: float = Field(3600.0, ge=0, description="A partition is at rest this long after its last publication.")
    partitions_per_run_max: int = Field(
        10, ge=1, description="Partitions of each dataset in one run; the rest is left to the next run."
    )


class DatasetSpec(DatasetOptions):
    """One dataset. Fields that are left out come from the job's ``defaults``. A kind of source may have more fields."""

    model_config = ConfigDict(extra="allow")

    urn: str | None = Field(None, description="Default: the table's name, such as public.orders.")
    table: str | None = Field(None, description="The table at the source; default: the URN.")
    extract: ExtractType = ExtractType.SNAPSHOT_ONLY
    watermark: WatermarkSpec | None = None
    primary_key: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = Field(None, description="Read only these columns.")
    casts: dict[str, str] = Field(
        default_factory=dict, description="Column to an expression in the source's SQL, for types Spark can't hold."
    )
    where: str | None = Field(None, description="Condition in the source's SQL that bounds the dataset.")
    converters: tuple[ConverterSpec, ...] = ()
    quality: QualitySpec = QualitySpec()
    writer: WriterSpec = WriterSpec()
    split: SplitSpec = SplitSpec()
    schema_change: SchemaChangeSpec = SchemaChangeSpec()
    into: dict[str, Any] | None = Field(
        None, description="What differs for this dataset from the job's `into`, such as its table or topic."
    )

    @model_validator(mode="wrap")
    @classmethod
    def _read_options_of_sources(cls, written: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(written, Mapping):
            return handler(written)
        own = {name: value for name, value in written.items() if name in cls.model_fields}
        others, problems = read_dataset_options({name: written[name] for name in written if name not in own})
        try:
            read = handler({**own, **others})
        except ValidationError as error:
            problems += keep_errors(error)
        if problems:
            raise ValidationError.from_exception_data(cls.__name__, problems)
        return read

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        shown = handler(schema)
        options = handler.resolve_ref_schema(shown)
        for model in list_dataset_options():
            own = handler.resolve_ref_schema(handler(model.__pydantic_core_schema__))
            options["properties"] = {**options["properties"], **own["properties"]}
        return {**options, "additionalProperties": False}


class JobSpec(JobOptions):
    """A job that reads rows: one source, one destination, many datasets; one multi_asset in Dagster."""

    kind: Literal["ingest"] = Field("ingest", description="What the job does.")
    source: AnySource
    datasets: tuple[DatasetSpec, ...] = ()
    defaults: DatasetSpec = DatasetSpec()
    commit_policy: Annotated[CommitPolicy, BeforeValidator(_refuse_partial)] = Field(
        CommitPolicy.FULL,
        description="full publishes everything or nothing of a dataset partition; successful publishes, per watermark "
        "key, the rows that were read without a gap from the last position on.",
    )
    rows_per_s_max: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Tasks are delayed so that no more rows are read per second, on average.",
    )
    packer: PackerSpec = PackerSpec()
    retire_grace_s: float = Field(RETIRE_GRACE_S, ge=0, description="How long retired files stay for lazy readers.")
    compaction: CompactionSpec | None = Field(
        None, description="Runs compact partitions at rest after they have published. Default: by command only."
    )
    umask: Annotated[int, BeforeValidator(_read_octal), Field(ge=0, le=_UMASK_MAX)] = Field(
        0o022, description="umask of published files and directories; a text is read as octal."
    )
    into: AnyInto | None = Field(
        None,
        description="Where rows go instead of files, exactly once: a kind of destination, by its type. Staged files, "
        "quarantine and dead letters stay in files below `destination`.",
    )
    sink: SinkSpec = Field(SinkSpec(), description="Logs: how `gobblin-assets sink run` publishes them.")
    roles: tuple[Role, ...] = Field((Role.DATA,), description="Roles that get an asset of their own.")

    @property
    def rows_into(self) -> IntoSpec | None:
        """Where rows go instead of files, wherever the job says so; that of ``sink`` is the older place."""
        return self.into if self.into is not None else self.sink.into

    @property
    def into_option(self) -> str:
        """The option that says where rows go."""
        return "sink.into" if self.into is None and self.sink.into is not None else "into"
