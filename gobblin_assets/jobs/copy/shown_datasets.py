"""Copied datasets as assets."""

from typing import Final

from gobblin_assets.jobs.asset_view import ShownAsset
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec, CopySpec

KINDS: Final = frozenset({"file"})


def show_copy(job: CopySpec, dataset: CopyDatasetSpec) -> ShownAsset:
    """A dataset with its defaults applied."""
    source, place = _join(job.source, dataset.path), _join(job.destination, dataset.to)
    return ShownAsset(
        description=f"The files below {source}, copied to {place}.",
        uri=place,
        kinds=KINDS,
        metadata={"gobblin/source_uri": source, "gobblin/deletes": dataset.deletes.value},
    )


def _join(root: str, path: str | None) -> str:
    return "/".join((root.rstrip("/"), path)) if path else root
