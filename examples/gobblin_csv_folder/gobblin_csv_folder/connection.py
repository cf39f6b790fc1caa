"""How the folders are reached: GOBBLIN_CSV_FOLDER_<NAME>_PATH, or the resource that Dagster has of it."""

from typing import ClassVar

from gobblin_assets.sources.connection import SourceConnection
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_csv_folder.source import CsvFolderSource


class FolderConnection(SourceConnection):
    """``path`` is the folder that the datasets' folders lie in, on this machine and where Spark runs."""

    ADDRESS: ClassVar[str] = "path"
    ADDRESS_IS: ClassVar[str] = "the path"
    ADDRESS_HINT: ClassVar[str] = "Set it to an absolute path, such as /mnt/office."

    path: str

    def open_source(self, job: JobSpec) -> CsvFolderSource:
        del job
        return CsvFolderSource(self.path)
