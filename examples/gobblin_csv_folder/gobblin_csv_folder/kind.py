"""The registration: what a job may say to this source. Every process that reads a job file loads it."""

from typing import Final, Literal

from pydantic import Field

from gobblin_assets.errors import RejectedError
from gobblin_assets.spec.job_spec import DatasetSpec
from gobblin_assets.spec.source_kind import Scaffold, SourceKind
from gobblin_assets.spec.source_spec import SourceSpec
from gobblin_assets.spec.spec_model import SpecModel


class CsvFolderSpec(SourceSpec):
    """Folders below the path of one connection."""

    type: Literal["csv_folder"]


class CsvSpec(SpecModel):
    """How the files of one folder are read. A value that does not fit its type fails the task."""

    schema_: str = Field(alias="schema", description="Columns as Spark's DDL: id bigint, name string.")
    header: bool = Field(True, description="Whether each file begins with a line of names.")


class FolderOptions(SpecModel):
    """What a dataset says besides the options that all datasets have."""

    folder: str | None = Field(None, description="The folder; default: the URN.")
    csv: CsvSpec | None = None


def csv_of(dataset: DatasetSpec) -> CsvSpec | None:
    return FolderOptions.model_validate(dataset.model_extra or {}).csv


def _check(dataset: DatasetSpec, where: str) -> None:
    if csv_of(dataset) is None:
        raise RejectedError(
            "expected the columns of its files, found none", field=f"{where}.csv.schema", hint="Write id bigint, …"
        )


CSV_FOLDER: Final = SourceKind(
    name="csv_folder",
    noun="folder",
    title="CSV folder",
    spec=CsvFolderSpec,
    dataset_options=FolderOptions,
    refused={
        "table": "write folder",
        "extract": "a folder is published whole",
        "watermark": "a folder is published whole",
        "columns": "use converters: [{select: [...]}]",
        "casts": "use converters: [{cast: {...}}]",
        "where": "use converters: [{where: ...}]",
        "partitions": "a folder is published whole",
    },
    connection="gobblin_csv_folder.connection:FolderConnection",
    scaffold=Scaffold(dataset="invoices", address="/mnt/office"),
    check_dataset=_check,
)
