"""Runs of a job's assets by a function of the user's own: what the function may do while the job is run.

The job is run as without the function, by ``materialize``: Dagster gets each event when its publication is there, and
not when the function gets to it. So a function that is slow, or fails, or drops an event, leaves the publications and
what Dagster knows of them as they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

import dagster as dg

from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.materialization import ToldEvent, materialize
from gobblin_assets.dagster.run_config import GobblinRunConfig
from gobblin_assets.errors import RejectedError

PublishedEvent = dg.AssetMaterialization | dg.AssetCheckEvaluation
"""What a function gets of a run."""

_Outcome = dg.Failure | dg.RetryRequested


@dataclass(slots=True)
class OwnRun:
    """One step of Dagster's, while the function runs it."""

    layout: JobLayout
    config: GobblinRunConfig
    _told: dict[int, ToldEvent] = field(default_factory=dict)
    _outcomes: list[_Outcome] = field(default_factory=list)

    def materialize(self, context: dg.AssetExecutionContext, datasets: Sequence[str]) -> Iterator[PublishedEvent]:
        """Run the job, and then give the events that Dagster has got of it; behind them, raise what failed."""
        told: list[ToldEvent] = []
        outcome: _Outcome | None = None
        try:
            materialize(context, self.layout, self.config, datasets=datasets, hear=told.append)
        except (dg.Failure, dg.RetryRequested) as error:
            outcome = error
            self._outcomes.append(error)
        self._told.update((id(event), event) for event in told)
        return self._give(told, outcome)

    def _give(self, told: Sequence[ToldEvent], outcome: _Outcome | None) -> Iterator[PublishedEvent]:
        for event in told:
            if isinstance(event, dg.AssetMaterialization | dg.AssetCheckEvaluation):
                yield event
        if outcome is not None:
            self._outcomes.remove(outcome)
            raise outcome

    def leave_out_told(self, given: Iterator[Any]) -> Iterator[Any]:
        """What the function gives Dagster, without the events that Dagster has. Raises what the function left unread.

        Two events may be equal, so their identities count, which last as long as ``_told`` keeps the events.
        """
        for event in given:
            if id(event) not in self._told:
                yield event
        if self._outcomes:
            raise self._outcomes[0]


_at_work: Final[WeakKeyDictionary[dg.AssetExecutionContext, OwnRun]] = WeakKeyDictionary()


def begin_own_run(context: dg.AssetExecutionContext, layout: JobLayout, config: GobblinRunConfig) -> OwnRun:
    """The run of the step at hand, which ``find_own_run`` finds by its context."""
    _at_work[context] = own = OwnRun(layout, config)
    return own


def find_own_run(context: dg.AssetExecutionContext) -> OwnRun:
    """RejectedError for the context of a step that no function under ``@gobblin_assets`` runs."""
    own = _at_work.get(context)
    if own is None:
        raise RejectedError(
            "expected the context of a function under @gobblin_assets, found another",
            field="context",
            hint="Write @gobblin_assets(job=...) over the function, and hand its own `context` over.",
        )
    return own


def read_resources(context: dg.AssetExecutionContext, names: Sequence[str]) -> Mapping[str, Any]:
    """The resources as Dagster hands them to functions: of some, what ops find in the context is another object."""
    resources: Any = context.resources
    return {name: resources.original_resource_dict[name] for name in names}
