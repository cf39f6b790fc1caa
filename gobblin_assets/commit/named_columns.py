"""The columns in which segments hold the steps of ``named_steps``, a row each.

The columns of paths hold the places, ``payload`` the rest. They are made from steps, or from the columns of what a copy
staged, when a million steps would take too much memory and time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.commit.arrow_arrays import make_array
from gobblin_assets.model.files import IdentityColumns

METADATA: Final = "m"
EXCHANGES: Final = "x"
_BY_TWO_RENAMES: Final = "r"


@dataclass(frozen=True, slots=True)
class PlaceColumns:
    """Where the steps' files are. ``directories``: of their places in the attempt, with it; ``numbers``: their names
    there. ``target_directories`` and ``target_names``: where they are published.
    """

    directories: Sequence[str]
    numbers: Sequence[str]
    target_directories: Sequence[str]
    target_names: Sequence[str]


def flags_of_replacement(*, exchanges: bool, is_metadata: bool) -> str:
    return f"{EXCHANGES if exchanges else _BY_TWO_RENAMES}{METADATA if is_metadata else ''}"


def columns_of_ensured(places: PlaceColumns) -> list[Sequence[object]]:
    """Of directories, of which nothing but the places is known."""
    return _join(places, None, [None] * len(places.numbers))


def columns_of_modes(places: PlaceColumns, modes: Sequence[str]) -> list[Sequence[object]]:
    """Of directories whose modes change; ``modes``: as the codec of their steps writes them."""
    return _join(places, None, modes)


def columns_of_placed(
    places: PlaceColumns, identities: IdentityColumns, *, flags: Sequence[str | None]
) -> list[Sequence[object]]:
    """``flags``: METADATA or nothing."""
    return _join(places, identities, flags)


def columns_of_replaced(
    places: PlaceColumns, identities: IdentityColumns, old: IdentityColumns, *, flags: Sequence[str]
) -> list[Sequence[object]]:
    """``flags``: how each is replaced, and METADATA where it is."""
    return _join(places, identities, pc.binary_join_element_wise(make_array(flags, pa.string()), _write(old), ":"))


def columns_of_removed(places: PlaceColumns, old: IdentityColumns) -> list[Sequence[object]]:
    return _join(places, None, _write(old))


def _join(
    places: PlaceColumns, identities: IdentityColumns | None, payload: Sequence[object]
) -> list[Sequence[object]]:
    count = len(places.numbers)
    nothing = [None] * count
    of_published: list[Sequence[object]] = [nothing] * 5
    if identities is not None:
        of_published = [identities.sizes_bytes, identities.inodes, identities.mtimes_ns, identities.tags, [0] * count]
    return [
        places.directories,
        places.numbers,
        places.target_directories,
        places.target_names,
        *of_published,
        payload,
    ]


def _write(identities: IdentityColumns) -> pa.Array:
    """Each as ``named_codecs.format_identity`` writes it."""
    fields = (
        make_array(identities.sizes_bytes, pa.int64()),
        make_array(identities.inodes, pa.uint64()),
        make_array(identities.mtimes_ns, pa.int64()),
        make_array(identities.tags, pa.string()),
    )
    return pc.binary_join_element_wise(*(pc.fill_null(each.cast(pa.string()), "") for each in fields), ",")
