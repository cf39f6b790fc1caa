"""Names of a dataset in Dagster: asset keys, op, output and check names, groups, tags, and the translator.

Dagster's op and output names take letters, digits and underscores only, and two asset keys that differ may give
the same name; so ours carry a digest of the key. A job's own name is one that Dagster takes (``model.urn``).
"""

import hashlib
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import dagster as dg
from dagster import DagsterError
from dagster._check import CheckError

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.programs import ShownAsset, ShownTable, ShownTree
from gobblin_assets.model.path_names import asset_key_of, source_key_of, source_tree_key_of
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.spec.job_options import DatasetOptions, JobOptions
from gobblin_assets.spec.source_kind import kind_of
from gobblin_assets.spec.source_spec import SourceSpec

SOURCES_GROUP: Final = "sources"
TABLE_NAME: Final = "dagster/table_name"
STORAGE_KIND: Final = "dagster/storage_kind"

_READABLE_LENGTH_MAX: Final = 60
_DIGEST_DIGITS: Final = 10
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True)
class DatasetTranslation:
    """The data for a translator: one role of one dataset, its defaults applied, and how its kind of job shows it.

    Of an ingestion, ``job`` is a JobSpec and ``dataset`` a DatasetSpec; of a copy, a CopySpec and a CopyDatasetSpec.
    """

    job: JobOptions
    urn: DatasetUrn
    dataset: DatasetOptions
    role: Role
    shown: ShownAsset


@dataclass(frozen=True, slots=True)
class SourceTranslation:
    """The data for a translator: the table or topic ``name`` of a connection, whatever jobs read it.

    ``kind``: the kind that Dagster shows, such as postgres, kafka; ``table`` if the database is unknown.
    """

    source: SourceSpec
    name: str
    kind: str


class GobblinTranslator:
    """The translator of datasets into Dagster's assets. Subclass it, and change what ``get_asset_spec`` returns.

    Partitions, skippability and the check specs are not a translator's: the run depends on them.
    """

    def get_source_spec(self, data: SourceTranslation) -> dg.AssetSpec | None:
        """The upstream external asset of a dataset's assets. None: there is none.

        Of several jobs that read one table, the answer for the first in the process counts: Dagster takes one spec for
        a key.
        """
        source = data.source
        return dg.AssetSpec(
            key=dg.AssetKey(list(source_key_of(source.type, source.connection, data.name))),
            group_name=SOURCES_GROUP,
            description=f"The {_word_of(source)} {data.name} of the connection {source.connection}.",
            kinds={data.kind},
            metadata={
                "gobblin/connection": source.connection,
                f"gobblin/{_word_of(source)}": data.name,
                **_describe_source_table(data),
            },
        )

    def get_source_tree_spec(self, tree: ShownTree) -> dg.AssetSpec | None:
        """The upstream external asset of a copied dataset, as ``get_source_spec``. None: there is none."""
        return dg.AssetSpec(
            key=dg.AssetKey(list(source_tree_key_of(tree.uri))),
            group_name=SOURCES_GROUP,
            description=f"The files below {tree.uri}.",
            kinds={tree.kind},
            metadata={"dagster/uri": tree.uri},
        )

    def get_asset_spec(self, data: DatasetTranslation) -> dg.AssetSpec:
        """Key, group, tags, kinds, description and metadata of one role of one dataset."""
        job, urn = JobName(data.job.job), data.urn
        return dg.AssetSpec(
            key=dg.AssetKey(list(asset_key_of(job, urn, data.role))),
            group_name=data.dataset.group or data.job.job,
            description=data.dataset.description or data.shown.description,
            tags=dict(data.dataset.tags),
            kinds=set(data.shown.kinds),
            metadata={
                "gobblin/job": data.job.job,
                "gobblin/urn": urn,
                "gobblin/role": data.role.value,
                **data.shown.metadata,
                "dagster/uri": data.shown.uri,
                **_describe_table(data.shown.table),
            },
        )


def translate(translator: GobblinTranslator, data: DatasetTranslation) -> dg.AssetSpec:
    """The translator's answer. What Dagster can't take is a RejectedError that names the dataset."""
    try:
        return translator.get_asset_spec(data)
    except (DagsterError, CheckError) as error:
        raise RejectedError(
            f"Dagster does not accept its group, tags or key: {error}",
            field=f"datasets[{data.urn}]",
            hint="Groups take letters, digits and underscores; tag values also '.' and '-', at most 63 of them.",
        ) from error


def translate_source(translator: GobblinTranslator, data: SourceTranslation) -> dg.AssetSpec | None:
    """The translator's answer. What Dagster can't take is a RejectedError that names the connection."""
    with _accepting(data.name, "source.connection", "get_source_spec"):
        return translator.get_source_spec(data)


def translate_source_tree(translator: GobblinTranslator, tree: ShownTree) -> dg.AssetSpec | None:
    """The translator's answer. What Dagster can't take is a RejectedError that names the tree."""
    with _accepting(tree.uri, "source", "get_source_tree_spec"):
        return translator.get_source_tree_spec(tree)


@contextmanager
def _accepting(name: str, field: str, method: str) -> Iterator[None]:
    try:
        yield
    except (DagsterError, CheckError) as error:
        raise RejectedError(
            f"Dagster does not accept the asset of {name!a}: {error}",
            field=field,
            hint=f"Let the translator's {method} return another key, group or tags.",
        ) from error


def output_name_of(key: dg.AssetKey) -> str:
    """A name for the op's output that no other asset key shares, the same in every process."""
    text = key.to_user_string()
    readable = _NOT_IN_NAMES.sub("_", text).strip("_")[:_READABLE_LENGTH_MAX]
    digest = hashlib.sha256("\0".join(key.path).encode("utf-8")).hexdigest()[:_DIGEST_DIGITS]
    return f"{readable}_{digest}" if readable else f"asset_{digest}"


def group_name_of(name: str) -> str:
    """A group for a name that may have other letters than Dagster takes."""
    return _NOT_IN_NAMES.sub("_", name)


def check_output_name_of(key: dg.AssetKey, check: str) -> str:
    return f"check_{check}_{output_name_of(key)}"


def require_distinct(keys: Mapping[dg.AssetKey, list[DatasetUrn]]) -> None:
    """A translator that gives two datasets one key is a RejectedError that names both."""
    for key, urns in keys.items():
        if len(urns) > 1:
            raise RejectedError(
                f"the datasets {', '.join(map(repr, urns))} share the asset key {key.to_user_string()}",
                field="translation.key",
                hint="Let the translator make keys that differ wherever URN or role do.",
            )


def require_apart(sources: Iterable[dg.AssetKey], keys: Container[dg.AssetKey]) -> None:
    """A source under the key of a dataset is a RejectedError that names it."""
    for key in sources:
        if key in keys:
            raise RejectedError(
                f"a dataset and a table or topic that is read share the asset key {key.to_user_string()}",
                field="translation.key",
                hint="Let the translator make keys that differ.",
            )


def _describe_table(table: ShownTable | None) -> Mapping[str, str]:
    return {} if table is None else {TABLE_NAME: table.name, STORAGE_KIND: table.storage}


def _describe_source_table(data: SourceTranslation) -> Mapping[str, str]:
    """Nothing of a topic. The kind is the noun where nobody knows which database it is."""
    noun = _word_of(data.source)
    if noun != "table":
        return {}
    return {TABLE_NAME: data.name} | ({} if data.kind == noun else {STORAGE_KIND: data.kind})


def _word_of(source: SourceSpec) -> str:
    return kind_of(source).noun
