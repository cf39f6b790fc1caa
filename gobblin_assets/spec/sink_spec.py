"""The sink of a job file: `gobblin-assets sink run` follows the job's logs by several workers."""

from typing import Annotated, Final, Literal

from pydantic import Field

from gobblin_assets.spec.destination_kind import AnyInto
from gobblin_assets.spec.spec_model import MIB, SpecModel, Whole


class RollSpec(SpecModel):
    """When the open, invisible files of a lane are closed and published: at the first barrier behind any bound."""

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
    """When the current rows of a change log are written as a base, from which ``read_current`` goes on."""

    changes_min: int = Field(1_000_000, ge=1, description="Changes behind the last base that are worth a new one.")
    cron: Annotated[str, Field(pattern=r"^\s*\S+(\s+\S+){4}\s*$")] | None = Field(
        None, description="In Dagster, a schedule writes bases at these times (UTC). Default: by command, or by hand."
    )


class SinkSpec(SpecModel):
    """How several workers publish the job's logs at once, each exactly once."""

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
