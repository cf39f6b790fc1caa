"""The job kinds and destinations of the crash suite, the contracts and the simulated world.

To add a kind or a destination, add one line here.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Final

from gobblin_assets.destinations.registry import DestinationFactory, open_directories, open_row_files
from gobblin_assets.model.clock import Clock
from tests.support.numbered_rows import NumberedRows, Rows

MakeKind = Callable[..., NumberedRows]

UNITS = 2


def _numbered_rows(
    rows: Rows, names: Callable[[], Sequence[str]], clock: Clock, columns: Mapping[str, str], *, shares: bool = False
) -> NumberedRows:
    return NumberedRows("lines", rows, names, clock.new_id, UNITS, columns, shares=shares)


KINDS: Mapping[str, MakeKind] = {"numbered_rows": _numbered_rows}
DIRECTORIES: Final = "directories"
OBJECTS: Final = "objects"
HDFS: Final = "hdfs"
DESTINATIONS: Mapping[str, DestinationFactory] = {
    DIRECTORIES: open_directories,
    OBJECTS: open_row_files,
    HDFS: open_row_files,
}
COMBINATIONS = list(product(KINDS, [DIRECTORIES]))
IN_A_STORE = list(product(KINDS, [OBJECTS]))
"""In a bucket of a real server: a test of the crash suite asks for them by ``with_objects``."""

ON_HDFS = list(product(KINDS, [HDFS]))
"""On a real HDFS: by ``with_stores``."""
