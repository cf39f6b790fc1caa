"""Copied datasets as assets."""

from gobblin_assets.jobs.asset_view import ShownAsset, ShownTree
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec, CopySpec
from gobblin_assets.jobs.copy.transfer.port import TransferWay


def show_copy(job: CopySpec, dataset: CopyDatasetSpec) -> ShownAsset:
    """A dataset with its defaults applied."""
    source, place = _join(job.source, dataset.path), _join(job.destination, dataset.to)
    return ShownAsset(
        description=f"The files below {source}, copied to {place}.",
        uri=place,
        kinds=frozenset({_kind_of(place), *(["spark"] if job.transfer is TransferWay.SPARK else [])}),
        metadata={"gobblin/source_uri": source, "gobblin/deletes": dataset.deletes.value},
        source_tree=ShownTree(source, _kind_of(source)),
    )


def _kind_of(uri: str) -> str:
    """The scheme says it; a path has none."""
    return uri.partition("://")[0] if "://" in uri else "file"


def _join(root: str, path: str | None) -> str:
    return "/".join((root.rstrip("/"), path)) if path else root
