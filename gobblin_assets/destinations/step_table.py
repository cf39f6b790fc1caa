"""The table of the kinds of steps that load rows into the destinations that this package has."""

from types import MappingProxyType
from typing import Final

from gobblin_assets.spec.destination_kind import DESTINATION_KINDS

STEPS: Final = MappingProxyType(
    {name: place for kind in DESTINATION_KINDS.built_in for name, place in DESTINATION_KINDS.get(kind).steps.items()}
)
"""Each as ``module:attribute``."""
