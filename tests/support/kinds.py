"""The job kinds and destinations of the crash suite, the contracts and the simulated world.

To add a kind or a destination, add one line here.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product

from gobblin_assets.destinations.registry import DestinationFactory, open_posix_destination
from gobblin_assets.model.clock import Clock
from tests.support.numbered_rows import NumberedRows, Rows

MakeKind = Callable[..., NumberedRows]

UNITS = 2


def _numbered_rows(
    rows: Rows, names: Callable[[], Sequence[str]], clock: Clock, columns: Mapping[str, str], *, shares: bool = False
) -> NumberedRows:
    return NumberedRows("lines", rows, names, clock.new_id, UNITS, columns, shares=shares)


KINDS: Mapping[str, MakeKind] = {"numbered_rows": _numbered_rows}
DESTINATIONS: Mapping[str, DestinationFactory] = {"directories": open_posix_destination}
COMBINATIONS = list(product(KINDS, DESTINATIONS))
