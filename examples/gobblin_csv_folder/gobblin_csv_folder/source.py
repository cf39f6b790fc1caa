"""Planning and reading. A plan names the files that are there, and exactly these are read."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.work_unit import WorkUnit, WorkUnitId
from gobblin_assets.run.job_kind import UnitPlan
from gobblin_assets.sources.source_port import PlanSession, ReadPlan, SharedRows, SourceRequest
from gobblin_csv_folder.kind import CsvSpec, csv_of


@dataclass(frozen=True, slots=True)
class CsvFolderSource:
    """``Source`` and its session in one: nothing has to stay open while files are read."""

    path: str

    @contextmanager
    def open_plan(
        self,
        spark: Callable[[], SparkSession],
        say: Callable[[str], None],
        requests: Sequence[SourceRequest] = (),
    ) -> Iterator[PlanSession]:
        del spark, say, requests
        yield self

    def discover(self, spark: Callable[[], SparkSession]) -> Sequence[str]:
        del spark
        return sorted(each.name for each in Path(self.path).iterdir() if each.is_dir())

    def plan(self, request: SourceRequest) -> UnitPlan:
        folder, csv = Path(self.path, request.spec.table or request.urn), csv_of(request.spec)
        if not folder.is_dir() or csv is None:
            raise RejectedError(
                f"expected a folder {folder}, found none",
                field=f"datasets[{request.urn}].folder",
                hint="Correct the name, or the path of the connection.",
            )
        files = sorted(folder.glob("*.csv"))
        unit = WorkUnit(
            id=WorkUnitId(uuid.uuid4()),
            dataset=request.urn,
            partition=request.partition,
            key=str(request.urn),
            number=0,
            interval=None,
            estimated_bytes=sum(file.stat().st_size for file in files),
            properties={"files": [str(file) for file in files]},
        )
        return UnitPlan(
            urn=request.urn,
            partition=request.partition,
            mode=Mode.REFRESH,
            replaces=True,
            is_snapshot=True,
            work_units=(unit,),
            payload=ReadPlan(request.spec, CsvReader(csv)),
        )


@dataclass(frozen=True, slots=True)
class CsvReader:
    csv: CsvSpec

    def read(self, spark: SparkSession, units: Sequence[WorkUnit]) -> DataFrame:
        files = [str(file) for unit in units for file in _files_of(unit)]
        if not files:
            return spark.createDataFrame([], self.csv.schema_)
        # FAILFAST: a line that does not fit is an error, and no row of NULLs.
        return spark.read.csv(files, schema=self.csv.schema_, header=self.csv.header, mode="FAILFAST")

    def read_together(self, spark: SparkSession, parts: Sequence[tuple[ReadPlan, Sequence[WorkUnit]]]) -> SharedRows:
        del spark, parts
        raise CorruptionError("folders are read one by one: their plans share with none")

    def learn(self, error: Exception) -> None:
        """Nothing: each try reads in the same way."""

    def explain(self, error: Exception) -> Exception:
        if "MALFORMED_RECORD" in str(error):
            return RejectedError(
                "a line does not fit the columns", field="csv.schema", hint="Correct the file, or the columns."
            )
        return error


def _files_of(unit: WorkUnit) -> Sequence[object]:
    files = unit.properties["files"]
    return files if isinstance(files, list) else []
