"""The formats of files of rows. A file's name ends in its format, so that every reader can tell it."""

from enum import StrEnum
from types import MappingProxyType
from typing import Final

from gobblin_assets.errors import RejectedError


class FileFormat(StrEnum):
    """``JSON``: lines of one object each. ``CSV``: RFC 4180, with a header line."""

    PARQUET = "parquet"
    JSON = "json"
    CSV = "csv"


GZIP_ENDING: Final = ".gz"

TEXT_COMPRESSIONS: Final = MappingProxyType({"gzip": GZIP_ENDING, "none": ""})
"""What text files may be compressed by, and the last ending of their names.

Every reader of text knows gzip, and a gzip file carries a checksum of its content. Spark decompresses zstd only through
Hadoop's native library, which most installations lack.
"""


def format_of(path: str) -> FileFormat:
    """The format of a published file, by its name's ending. A file without a known ending is Parquet."""
    name = path.removesuffix(GZIP_ENDING)
    return next((each for each in FileFormat if name.endswith(f".{each}")), FileFormat.PARQUET)


def name_ending(file_format: FileFormat, compression: str) -> str:
    """What the names of such files end in, such as ``.zstd.parquet`` or ``.json.gz``.

    RejectedError for a compression that text files can't have.
    """
    if file_format is FileFormat.PARQUET:
        return f".{compression}.{file_format}"
    if compression not in TEXT_COMPRESSIONS:
        raise RejectedError(
            f"files of {file_format} can't be compressed by {compression!r}",
            field="writer.compression",
            hint=f"Choose {' or '.join(TEXT_COMPRESSIONS)}: not every reader of text knows another.",
        )
    return f".{file_format}{TEXT_COMPRESSIONS[compression]}"
