"""Which of the attributes that a job asks for its destination keeps, and what is said of the others."""

from collections.abc import Iterator
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.placement import PlacedEntries, make_placement
from gobblin_assets.fs.ranged import RangedFiles
from gobblin_assets.fs.registry import is_object_store, open_file_system
from gobblin_assets.fs.staging import StagingFiles
from gobblin_assets.fs.tree import Tree
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec, CopySpec
from gobblin_assets.jobs.copy.transfer.preserve import Preserve, parse_preserve

BLOCK_STEP_BYTES: Final = 512
"""HDFS has a checksum for each so many bytes, and its blocks are made of whole ones."""


def find_kept(spec: CopyDatasetSpec, source: Tree, files: object) -> Preserve:
    """What the destination can keep of it. ``files``: its file system; None: an object store."""
    preserve = parse_preserve(spec.preserve)
    if not isinstance(files, StagingFiles):
        return preserve
    chosen = make_placement(None, None, spec.replication, spec.block_bytes)
    return preserve.by_names(chosen, are_told=isinstance(source, PlacedEntries))


def describe_kept(spec: CopyDatasetSpec, source: Tree, files: object) -> Iterator[str]:
    """Sentences for the run's log on letters that have no effect."""
    kept = find_kept(spec, source, files)
    letters = parse_preserve(spec.preserve).letters - kept.letters
    if letters:
        yield f"preserve: {', '.join(sorted(letters))} have no effect, since the destination can't keep them"
    unread = kept.list_unread(
        is_local=not isinstance(source, RangedFiles),
        has_owners=not isinstance(source, RangedFiles) or source.has_owners,
        has_placements=isinstance(source, PlacedEntries),
    )
    if unread:
        yield f"preserve: {', '.join(unread)} have no effect, since the source has no such attributes"


def check_placement(spec: CopySpec) -> None:
    """RejectedError for a replication or a size of blocks where the destination has none, or not this one."""
    listed = (("datasets", spec.datasets), ("overrides", spec.overrides))
    written = [(f"{name}[{n}]", each) for name, all_ in listed for n, each in enumerate(all_)]
    for where, dataset in [("defaults", spec.defaults), *written]:
        for name in ("replication", "block_bytes"):
            if getattr(dataset, name) is not None and not _has_placements(spec.destination):
                raise RejectedError(
                    "only files of HDFS have one, and the destination is elsewhere",
                    field=f"{where}.{name}",
                    hint="Take it out, or copy to hdfs://…",
                )
        if dataset.block_bytes is not None and dataset.block_bytes % BLOCK_STEP_BYTES:
            raise RejectedError(
                f"expected a multiple of {BLOCK_STEP_BYTES}, found {dataset.block_bytes}",
                field=f"{where}.block_bytes",
                hint="Write such as 268435456.",
            )


def _has_placements(uri: str) -> bool:
    return not is_object_store(uri) and isinstance(open_file_system(uri)[0], StagingFiles)
