"""The view that a kind of job gives of its datasets as assets, whoever shows them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A table that has the rows. ``storage``: the kind of the store, such as postgres, iceberg."""

    name: str
    storage: str


@dataclass(frozen=True, slots=True)
class ShownTree:
    """A tree of files that a dataset is copied from. ``kind``: that of its file system, such as file, s3."""

    uri: str
    kind: str


@dataclass(frozen=True, slots=True)
class ShownAsset:
    """One role of one dataset. ``kinds``: the technologies that people see, at most three.

    ``uri``: where it is published. ``source_name``: its table or topic, for a dataset that is read over a connection;
    ``source_tree``: of a copy. ``table``: where rows go into a table.
    """

    description: str
    uri: str
    kinds: frozenset[str]
    metadata: Mapping[str, str] = field(default_factory=dict)
    source_name: str | None = None
    source_tree: ShownTree | None = None
    table: ShownTable | None = None


@dataclass(frozen=True, slots=True)
class DeclaredCheck:
    """A check that a dataset has.

    ``is_audit``: no publication evaluates it; it compares what is published with the source when somebody asks.
    ``of_sink``: of the dataset as a whole, and not of its partitions; the sink's sensor evaluates it.
    """

    name: str
    description: str
    blocking: bool = False
    is_audit: bool = False
    of_sink: bool = False
