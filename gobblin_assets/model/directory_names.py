"""The allowed names of a directory ``column=value``, so that every reader finds it. Pure.

Spark escapes both halves (``ExternalCatalogUtils.escapePathName``) and joins them by ``=``. Readers silently skip
directories by name: Spark leaves out names that begin with ``.`` or end in ``._COPYING_``
(``HadoopFSUtils.shouldFilterOutPathName``), Hadoop's input formats also names that begin with ``_``. A directory's name
begins with the column's name, and ends with the value. File systems allow 255 bytes for a name.
"""

import re
from typing import Final

from gobblin_assets.errors import RejectedError

NULL_DIRECTORY: Final = "__HIVE_DEFAULT_PARTITION__"
"""Spark's value of a directory for NULL."""

HIDDEN_ENDING: Final = "._COPYING_"
"""The ending that Hadoop's shell gives a file that is still being copied; Spark's readers skip it."""

SEGMENT_BYTES_MAX: Final = 255
COLUMN_BYTES_MAX: Final = 128
"""Bytes of a column's escaped name; about as many are left for the value."""

ESCAPED: Final = "".join(map(chr, range(1, 32))) + "\"#%'*/:=?[\\]^{\x7f"
"""The characters that Spark writes as ``%XX``."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SEPARATORS: Final = frozenset("/\\")


def escape_directory(text: str) -> str:
    """A column's name or a value as Spark writes it into a directory's name."""
    return "".join(f"%{ord(each):02X}" if each in ESCAPED else each for each in text)


def count_escaped_bytes(text: str) -> int:
    """The length of the text in a directory's name, in bytes, as Spark writes it."""
    return len(text.encode("utf-8", "surrogatepass")) + 2 * sum(character in ESCAPED for character in text)


def check_directory_column(name: str, field: str) -> None:
    """RejectedError for the name of a column that can't become a directory's."""
    if not name.strip():
        raise RejectedError("expected the name of a column, found none", field=field, hint="Give it a name.")
    if name[0] in "._":
        raise RejectedError(
            f"expected a name that does not begin with '.' or '_', found {name[:80]!a}",
            field=field,
            hint="Readers skip such directories, and the rows in them. Give it another name, by a rename converter.",
        )
    if found := _CONTROL.search(name) or next((each for each in name if each in _SEPARATORS), None):
        shown = found if isinstance(found, str) else found[0]
        raise RejectedError(
            f"expected a name without {shown!a}, found {name[:80]!a}",
            field=field,
            hint="The name becomes a directory's. Give it another one, by a rename converter.",
        )
    if (size_bytes := count_escaped_bytes(name)) > COLUMN_BYTES_MAX:
        raise RejectedError(
            f"expected a name of at most {COLUMN_BYTES_MAX} bytes as a directory, found {size_bytes} in {name[:40]!a}…",
            field=field,
            hint="Give it a shorter name, by a rename converter.",
        )


def check_directory_value(column: str, value: str, field: str) -> None:
    """RejectedError for a fixed value that can't be the rest of the directory's name."""
    if value == NULL_DIRECTORY:
        raise RejectedError("this directory would come back as NULL", field=field, hint="Give it another name.")
    if value.endswith(HIDDEN_ENDING):
        raise RejectedError(
            f"expected a name that does not end in {HIDDEN_ENDING!a}, found {value[:80]!a}",
            field=field,
            hint="Readers skip such directories. Give it another name.",
        )
    if "\0" in value:
        raise RejectedError("expected a name without NUL characters", field=field, hint="Give it another name.")
    size_bytes = count_escaped_bytes(column) + 1 + count_escaped_bytes(value)
    if size_bytes > SEGMENT_BYTES_MAX:
        raise RejectedError(
            f"expected at most {SEGMENT_BYTES_MAX} bytes with the column's name, found {size_bytes}",
            field=field,
            hint="Give it a shorter name.",
        )
