"""A kind of destination of rows, as a new one is registered: the options of a job, and how the place is opened."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import Field, SerializeAsAny

from gobblin_assets.extensions import Extensions
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.kind_options import KindOptions
from gobblin_assets.spec.spec_model import SpecModel


class IntoSpec(SpecModel):
    """A destination of rows other than files. Each kind has a model of its own below this one, with its ``type``."""

    type: str
    connection: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,100}$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationKind:
    """A kind of destination, offered by an entry point of the group ``gobblin_assets.destination_kinds`` with its name.

    It imports no client, because every process that reads a job file loads it. ``variables``: how the variables of its
    connections go on after GOBBLIN_; ``address``: how that of the address ends; None: executors can't tell which
    connections they have. ``of_datasets``: options that a dataset may have otherwise than its job.
    ``place``: a function ``PlaceRequest -> RowsPlace`` as ``module:function``, imported when a run or a worker begins;
    what the place can do, it says itself. ``steps``: the kinds of commit steps that load its rows, each as
    ``module:attribute``, imported when the log first holds such a step; a package offers them by the group
    ``gobblin_assets.steps`` instead.
    ``names_table``: gives the name of a dataset's table, as Dagster shows it; None: rows go into no table.
    """

    name: str
    spec: type[IntoSpec]
    variables: str
    place: str
    address: str | None = None
    of_datasets: frozenset[str] = frozenset()
    steps: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    names_table: Callable[[DatasetUrn, IntoSpec], str] | None = None


DESTINATION_KINDS: Final = Extensions[DestinationKind](
    group="gobblin_assets.destination_kinds",
    noun="kind of destination",
    option="into.type",
    accepts=lambda found: isinstance(found, DestinationKind),
    built_in={
        "iceberg": "gobblin_assets.destinations.iceberg.iceberg_kind:ICEBERG",
        "kafka": "gobblin_assets.destinations.kafka.topics_kind:KAFKA",
        "postgres": "gobblin_assets.destinations.postgres.tables_kind:POSTGRES",
    },
    meant={
        **dict.fromkeys(("jdbc", "postgresql", "table", "tables", "database"), "postgres"),
        **dict.fromkeys(("topic", "topics", "redpanda"), "kafka"),
        **dict.fromkeys(("lakehouse",), "iceberg"),
        **dict.fromkeys(("file", "files", "parquet", "s3", "hdfs"), "no `into`: `destination` says where files go"),
    },
)

INTO_OPTIONS: Final = KindOptions(DESTINATION_KINDS, IntoSpec)

AnyInto = Annotated[SerializeAsAny[IntoSpec], INTO_OPTIONS]


def list_into_specs() -> list[type[IntoSpec]]:
    """The models of what ``into`` may be."""
    return [kind.spec for kind in INTO_OPTIONS.list_kinds()]


def kind_of_rows(into: IntoSpec) -> DestinationKind:
    """The kind of a destination that was read from a job. RejectedError if its package can't be loaded."""
    return DESTINATION_KINDS.get(into.type)


def register_destination_kind(kind: DestinationKind) -> None:
    """Make a kind known to this process only. RejectedError if the name is known already."""
    DESTINATION_KINDS.register(kind.name, kind)
