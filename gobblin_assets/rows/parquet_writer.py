"""One Spark write into an attempt's own directory, and the files that count as its output.

The v1 file committer renames a task's files when the job commits and writes ``_SUCCESS`` last, as the sign of a
complete write. Speculative or repeated tasks leave nothing visible. Row counts are read from the footers of
the files, never from Spark's metrics, which count a repeated task twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.model.files import DataFile, FileStat
from gobblin_assets.rows.new_files import count_rows
from gobblin_assets.spark.errors import spark_families
from gobblin_assets.spark.executor_sight import require_sight

FOOTER_THREADS_MAX: Final = 8

SUCCESS_NAME: Final = "_SUCCESS"
_TEMPORARY_NAME: Final = "_temporary"
_DATA_ENDING: Final = ".parquet"
_LOCAL: Final = "file://"

# The committer's algorithm 2 shows files before the job commits, and a site may have switched the marker off.
_COMMITTER: Final = {
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
}
# Hadoop's default file system for local paths puts a checksum file beside each file; a cached one would be reused.
_WITHOUT_CHECKSUM_FILES: Final = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}

# Parquet's own default, which a site may have switched off: `gobblin-assets verify --checksums` needs the checksums.
_PAGE_CHECKSUMS: Final = {"parquet.page.write-checksum.enabled": "true"}


@dataclass(frozen=True, slots=True)
class WrittenDirectory:
    """A directory with data files in it. ``path`` is absolute; ``partition_path`` is relative to the attempt's
    directory: ``""``, or ``column=value`` segments as Spark escaped them. Files are in the order of their names.
    ``steps`` publish files that are published one by one; ``samples``: rows of files that can't be read yet, as texts;
    ``optional_failures``: of these files' rows, as ``run.job_kind.Staged`` has them.
    """

    path: str
    partition_path: str
    files: tuple[DataFile, ...]
    steps: tuple[CommitStep, ...] = ()
    samples: tuple[str, ...] = ()
    optional_failures: Mapping[str, int] = field(default_factory=dict)

    @property
    def row_count(self) -> int:
        return sum(file.row_count for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.identity.size_bytes for file in self.files)


def write_parquet(
    frame: DataFrame,
    directory_uri: str,
    *,
    partition_columns: Sequence[str] = (),
    file_rows_max: int | None = None,
    compression: str = "zstd",
) -> None:
    """Write the frame into a new directory. After any error the directory is given up and never written again.

    ConflictError if the directory exists, RejectedError if Spark refuses the query or a column's type, or where its
    executors don't see the directory above, RetryableError for all else.
    """
    if directory_uri.startswith(_LOCAL):
        require_sight(frame.sparkSession, _above(directory_uri))
    options = {
        **_COMMITTER,
        **_PAGE_CHECKSUMS,
        **(_WITHOUT_CHECKSUM_FILES if directory_uri.startswith(_LOCAL) else {}),
    }
    if file_rows_max is not None:
        options["maxRecordsPerFile"] = str(file_rows_max)
    # Connect knows this mode by its short name only.
    writer = frame.write.mode("error").option("compression", compression).options(**options)
    if partition_columns:
        writer = writer.partitionBy(*partition_columns)
    with spark_families(f"write to {directory_uri}"):
        writer.parquet(directory_uri)


def refuse_blind_writers(session: SparkSession, directory_uri: str) -> None:
    """RejectedError if executors don't see the directory: after a complete write into it that lacks rows.

    They joined while rows were written, and were not asked before. Rows may lack for other reasons.
    """
    if directory_uri.startswith(_LOCAL):
        require_sight(session, _above(directory_uri), lacks_rows=True)


def _above(directory_uri: str) -> str:
    return directory_uri.removeprefix(_LOCAL).rpartition("/")[0]


def collect_output(fs: FileSystem, directory: str) -> list[WrittenDirectory]:
    """The directories with data files that a complete write left, in path order. Everything else is removed first.

    Removes, in this attempt's own directory: hidden names (a leading ``.``, or ``_`` without ``=``), files
    without rows, directories that become empty, and ``_SUCCESS`` last, so that an interrupted collection can be
    repeated. RetryableError if the write is not complete or a file can't be read; RejectedError if rows were
    written below a hidden name, which readers skip.
    """
    marker = f"{directory}/{SUCCESS_NAME}"
    found = fs.list_files(directory)
    if not any(file.path == marker for file in found):
        raise RetryableError(f"the write to {directory} is not complete: it has no {SUCCESS_NAME}", path=directory)
    fs.remove_tree(f"{directory}/{_TEMPORARY_NAME}")
    hidden = [file for file in found if _is_hidden(file.path.removeprefix(directory + "/"))]
    _require_no_rows(fs, directory, hidden)
    shown = [file for file in found if file not in set(hidden)]
    counted = list(zip(shown, _count_rows(fs, shown), strict=True))
    _remove(fs, directory, [file for file in hidden if file.path != marker])
    _remove(fs, directory, [file for file, row_count in counted if row_count == 0])
    _remove(fs, directory, [file for file in hidden if file.path == marker])
    kept = [(file, row_count) for file, row_count in counted if row_count > 0]
    return [
        WrittenDirectory(
            path=path,
            partition_path=path.removeprefix(directory).lstrip("/"),
            files=tuple(
                DataFile(name=file.path.rpartition("/")[2], identity=file.identity, row_count=row_count)
                for file, row_count in files
            ),
        )
        for path, files in groupby(sorted(kept, key=_by_directory), key=lambda entry: _by_directory(entry)[0])
    ]


def _is_hidden(relative_path: str) -> bool:
    """Whether Spark's readers skip the path. A partition column may begin with ``_``: its directory has a ``=``."""
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in relative_path.split("/"))


def _require_no_rows(fs: FileSystem, directory: str, hidden: Sequence[FileStat]) -> None:
    """RejectedError if a data file below a hidden directory holds rows: they are data, not Spark's leftovers."""
    inside = [(file, file.path.removeprefix(directory + "/")) for file in hidden]
    data = [
        file
        for file, path in inside
        if path.endswith(_DATA_ENDING)
        and not path.startswith(f"{_TEMPORARY_NAME}/")
        and not _is_hidden(path.rpartition("/")[2])
    ]
    for file, row_count in zip(data, _count_rows(fs, data), strict=True):
        if row_count:
            raise RejectedError(
                f"{row_count:,} rows went to {file.path.removeprefix(directory + '/')!r}, which readers skip",
                field="writer",
                hint="Nothing that its task read was published. Give the directory column a name that begins with "
                "neither '.' nor '_'.",
            )


def _count_rows(fs: FileSystem, files: Sequence[FileStat]) -> list[int]:
    with ThreadPoolExecutor(FOOTER_THREADS_MAX, thread_name_prefix="footer") as pool:
        return list(pool.map(lambda file: count_rows(fs, file.path), files))


def _remove(fs: FileSystem, root: str, files: Iterable[FileStat]) -> None:
    for file in files:
        fs.remove_file(file.path, file.identity)
        parent = file.path.rpartition("/")[0]
        while len(parent) > len(root) and fs.remove_empty_directory(parent):
            parent = parent.rpartition("/")[0]


def _by_directory(entry: tuple[FileStat, int]) -> tuple[str, str]:
    directory, _, name = entry[0].path.rpartition("/")
    return directory, name
