"""The table of the kinds of steps that the destinations of this package have: a folder's kinds, by its modules."""

from functools import cache
from types import MappingProxyType
from typing import Final

_OF_FILES: Final = MappingProxyType(
    {
        "gobblin_assets.destinations.files.rename_steps:RENAME_KINDS": ("rename_file", "rename_directory"),
        "gobblin_assets.destinations.files.upload_step:PUBLISH_OBJECT": ("publish_object",),
        "gobblin_assets.destinations.fixed_names.named_codecs:NAMED_KINDS": (
            *("place_file", "place_directory", "replace_file", "remove_file", "ensure_directory"),
            *("clear_file", "clear_directory", "open_directory", "close_directory"),
        ),
        "gobblin_assets.destinations.fixed_names.object_steps:OBJECT_KINDS": (
            *("place_object", "replace_object", "remove_object"),
        ),
    }
)
"""By the place of each kind, or of several kinds."""

STEP_PLACES: Final = MappingProxyType({name: place for place, names in _OF_FILES.items() for name in names})
"""The place of each kind that publishes files."""


def find_step_place(name: str) -> str | None:
    """Where the kind of this name is, as ``module:attribute``: a ``StepKind``, or several. None: it is not ours."""
    return STEP_PLACES.get(name) or _list_of_rows().get(name)


@cache
def _list_of_rows() -> dict[str, str]:
    """Of destinations of rows, by the kinds that job files name."""
    from gobblin_assets.spec.destination_kind import (  # noqa: PLC0415  a log of files needs no models of job files
        DESTINATION_KINDS,
    )

    kinds = map(DESTINATION_KINDS.get, DESTINATION_KINDS.built_in)
    return {name: place for kind in kinds for name, place in kind.steps.items()}
