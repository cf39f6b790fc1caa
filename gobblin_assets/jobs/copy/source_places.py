"""What lies on the way from a job's source to what is copied: no link may lead out of the source."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from gobblin_assets.destinations.claims import WORK_NAME
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import LinkedPlaces, Tree, list_without_files
from gobblin_assets.jobs.copy.difference import LinkPolicy


def require_inside(tree: Tree, root: str, place: str, links: LinkPolicy) -> None:
    """Look at each name from ``root``, the job's source, to the directory ``place`` below it.

    ``root`` itself may be a link, as a mount often is. RejectedError for a link that the policy does not follow, or
    that leads out of the source or into a work directory. So none leads to the destination, which lies apart.
    """
    if not isinstance(tree, LinkedPlaces):
        return
    for path in _list_ways(root, place):
        target = tree.find_link_target(path)
        if target is None:
            continue
        if links is not LinkPolicy.FOLLOW:
            raise RejectedError(
                f"{path} is a link, on the way to what is copied",
                field="links",
                hint="Write `links: follow` to copy what it leads to inside the source, or name that directory itself.",
                path=path,
            )
        _check_target(path, target, tree.find_real_path(root))


def _list_ways(root: str, place: str) -> Iterator[str]:
    names = place.split("/") if place else []
    for count in range(1, len(names) + 1):
        yield "/".join((root.rstrip("/"), *names[:count]))


def _check_target(path: str, target: str, real_root: str) -> None:
    def refuse(where: str) -> RejectedError:
        return RejectedError(
            f"the link {path} leads to {target}, which {where}",
            field="source",
            hint="Links are followed inside the source only: put a copy in its place, or name another directory.",
            path=path,
        )

    names = PurePosixPath(target)
    if target == real_root or not names.is_relative_to(real_root):
        raise refuse(f"is not below the source {real_root}")
    if WORK_NAME in names.relative_to(real_root).parts:
        raise refuse("lies in a work directory")


def require_source(tree: Tree, root: str) -> None:
    """RejectedError unless the job's source is a directory that can be listed. Nothing below it is looked at."""
    next(list_without_files(tree, root, lambda _path: False), None)
