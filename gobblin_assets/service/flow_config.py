"""The description of a flow as people write it: from where, to where, by which templates, with which parameters."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, ValidationError

from gobblin_assets.errors import RejectedError
from gobblin_assets.spec.spec_errors import refuse
from gobblin_assets.spec.spec_model import SpecModel

DESTINATIONS_MAX: Final = 20


def _read_node(value: object) -> object:
    return {"node": value} if isinstance(value, str) else value


def _read_nodes(value: object) -> object:
    return [value] if isinstance(value, str | Mapping) else value


class NodeChoice(SpecModel):
    """A node that a flow begins or ends at. Written as its name alone, or with the format of the data there."""

    node: Annotated[str, Field(min_length=1, max_length=100)]
    format: str | None = Field(
        None, description="Such as table, topic, changes, dataset, tree. Default: what the node's kind holds."
    )


class FlowConfig(SpecModel):
    """A user's request: a flow's config, its source, its destinations.

    ``source`` and ``destinations`` may be left out where the flow's template names its nodes.
    """

    flow_group: str
    flow_name: str
    description: str = Field("", max_length=2_000)
    source: Annotated[NodeChoice, BeforeValidator(_read_node)] | None = None
    destinations: Annotated[
        tuple[Annotated[NodeChoice, BeforeValidator(_read_node)], ...], BeforeValidator(_read_nodes)
    ] = Field((), max_length=DESTINATIONS_MAX)
    template_uris: tuple[str, ...] = Field((), description="Only these templates are used, if there are some.")
    parameters: dict[str, Any] = Field(default_factory=dict, description="What the templates ask for.")
    schedule: str = Field("", description="Empty: the flow runs once, when it is created.")
    run_immediately: bool | None = Field(
        None, description="Run now. Default: at its creation, if there is no schedule; not at a change."
    )

    @property
    def runs_at_creation(self) -> bool:
        return self.run_immediately if self.run_immediately is not None else not self.schedule


def read_flow_config(data: Mapping[str, object]) -> FlowConfig:
    """RejectedError names each option that is wrong. A schedule is refused: nothing starts flows by time yet."""
    try:
        config = FlowConfig.model_validate(data)
    except ValidationError as error:
        # Without its cause: pydantic's own text repeats what was found.
        raise refuse(error, FlowConfig) from None
    if config.schedule.strip():
        raise RejectedError(
            "flows can't be scheduled yet",
            field="schedule",
            hint="Leave it empty: the flow runs once; start it again by :run, from cron or from Dagster.",
        )
    return config
