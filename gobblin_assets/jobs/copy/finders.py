"""Kinds of dataset finders, by the word under ``finder`` in a copy: each opens a finder from its options.

A package offers a kind by an entry point of the group ``gobblin_assets.dataset_finders``.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pydantic import ValidationError

from gobblin_assets.errors import RejectedError
from gobblin_assets.extensions import Extensions
from gobblin_assets.fs.tree import Tree
from gobblin_assets.jobs.copy.datasets import WHOLE_TREE, CopyableDataset, DatasetFinder, FileSet
from gobblin_assets.jobs.copy.name_patterns import NamePattern, list_matches, parse_name_pattern
from gobblin_assets.spec.spec_errors import refuse
from gobblin_assets.spec.spec_model import SpecModel

_Model = TypeVar("_Model", bound=SpecModel)

OpenFinder = Callable[[Mapping[str, object]], DatasetFinder]
"""Options as they were written, without the kind's name, to a finder; RejectedError names the option."""

DATASET_FINDERS: Final = Extensions[OpenFinder](
    group="gobblin_assets.dataset_finders",
    noun="dataset finder",
    option="finder.kind",
    accepts=callable,
    built_in={
        "glob": "gobblin_assets.jobs.copy.finders:open_glob_finder",
        "stream": "gobblin_assets.jobs.copy.stream_finder:open_stream_finder",
        "manifest": "gobblin_assets.jobs.copy.manifest:open_manifest_finder",
    },
)

DEFAULT_FINDER: Final = "glob"


def open_finder(options: Mapping[str, object]) -> DatasetFinder:
    """The finder of the options under ``finder``, among them its ``kind``. RejectedError for an unknown kind."""
    kind = options.get("kind", DEFAULT_FINDER)
    if not isinstance(kind, str):
        known = ", ".join(DATASET_FINDERS.list_names())
        raise RejectedError(
            f"expected a kind of dataset finder, found {kind!r}", field="finder.kind", hint=f"Known: {known}."
        )
    return DATASET_FINDERS.get(kind)({name: value for name, value in options.items() if name != "kind"})


def read_finder_options(model: type[_Model], options: Mapping[str, object]) -> _Model:
    """The options as a model's values. RejectedError names the option, such as ``finder.pattern``."""
    try:
        return model.model_validate(options)
    except ValidationError as error:
        refused = refuse(error, model)
        message = refused.message.removeprefix(f"{refused.field}: ")
        raise RejectedError(message, field=f"finder.{refused.field}", hint=refused.hint) from None


class GlobFinderOptions(SpecModel):
    """``pattern``: globs of directories' names; empty for the root itself."""

    pattern: str = ""


@dataclass(frozen=True, slots=True)
class CopyableGlobDatasetFinder:
    """A dataset for each directory that matches, with all that is below it.

    The destination is the part of the path behind the pattern's leading names without a glob: ``raw/*`` publishes
    ``raw/orders`` as ``orders``. Links to directories are found where the tree follows links.
    """

    pattern: NamePattern

    def find_datasets(self, tree: Tree, root: str, now: dt.datetime) -> Sequence[CopyableDataset]:  # noqa: ARG002  the same at any time
        return [
            CopyableDataset(path or WHOLE_TREE, path, self.pattern.below_literal(path), (FileSet(""),))
            for path in sorted(list_matches(tree, root, self.pattern))
        ]


def open_glob_finder(options: Mapping[str, object]) -> CopyableGlobDatasetFinder:
    read = read_finder_options(GlobFinderOptions, options)
    return CopyableGlobDatasetFinder(parse_name_pattern(read.pattern, field="finder.pattern"))
