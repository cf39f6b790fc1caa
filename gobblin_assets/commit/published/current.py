"""The files that a dataset has now: at given names, a later publication replaces or removes files of earlier ones."""

from collections.abc import Iterable, Iterator
from enum import StrEnum

from gobblin_assets.commit.published.published_port import PublishedFile, PublishedSegment


def list_current(segments: Iterable[PublishedSegment]) -> Iterator[tuple[PublishedSegment, PublishedFile]]:
    """Each file with the segment that published it last. ``segments``: newest first, of any kinds of names."""
    seen: set[str] = set()
    for segment in segments:
        if not segment.has_given_names:
            yield from ((segment, file) for file in segment.files())
            continue
        for path, file in segment.changes():
            if path not in seen:
                seen.add(path)
                if file is not None:
                    yield segment, file


class Became(StrEnum):
    """What a later publication did to a version at a given name."""

    REPLACED = "replaced"
    REMOVED = "removed"


def list_kept_versions(
    segments: Iterable[PublishedSegment],
) -> Iterator[tuple[PublishedSegment, PublishedFile, Became | None]]:
    """``list_current``, and the earlier versions that the segments have; None for a version that is current."""
    later: dict[str, Became] = {}
    for segment in segments:
        if not segment.has_given_names:
            yield from ((segment, file, None) for file in segment.files())
            continue
        for path, file in segment.changes():
            if file is not None:
                yield segment, file, later.get(path)
            later[path] = Became.REMOVED if file is None else Became.REPLACED
