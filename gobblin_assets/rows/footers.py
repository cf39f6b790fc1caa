"""Facts from the footers of Parquet files."""

from pyarrow import ArrowException
from pyarrow import parquet as pq

from gobblin_assets.errors import RetryableError
from gobblin_assets.fs.file_system import FileSystem


def count_rows(fs: FileSystem, path: str) -> int:
    """The rows of one file. RetryableError if it can't be read."""
    try:
        with fs.open_input(path) as stream:
            return int(pq.read_metadata(stream).num_rows)
    except (ArrowException, OSError) as error:
        raise RetryableError(f"{path} is no readable Parquet file: {error}", path=path) from error
