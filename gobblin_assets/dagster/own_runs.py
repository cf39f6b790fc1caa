"""Runs of a job's assets by a function of the user's own, and the resource by which the function runs the job.

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
from gobblin_assets.dagster.materialization import ReportedEvent, materialize
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
    _reported: dict[int, ReportedEvent] = field(default_factory=dict)
    _outcomes: list[_Outcome] = field(default_factory=list)

    def materialize(self, context: dg.AssetExecutionContext, datasets: Sequence[str]) -> Iterator[PublishedEvent]:
        """Run the job, and then give the events that Dagster has got of it; behind them, raise what failed."""
        events: list[ReportedEvent] = []
        outcome: _Outcome | None = None
        try:
            materialize(context, self.layout, self.config, datasets=datasets, hear=events.append)
        except (dg.Failure, dg.RetryRequested) as error:
            outcome = error
            self._outcomes.append(error)
        self._reported.update((id(event), event) for event in events)
        return self._give(events, outcome)

    def _give(self, events: Sequence[ReportedEvent], outcome: _Outcome | None) -> Iterator[PublishedEvent]:
        for event in events:
            if isinstance(event, dg.AssetMaterialization | dg.AssetCheckEvaluation):
                yield event
        if outcome is not None:
            self._outcomes.remove(outcome)
            raise outcome

    def leave_out_reported(self, given: Iterator[Any]) -> Iterator[Any]:
        """What the function gives Dagster, without the events that Dagster has. Raises what the function left unread.

        Two events may be equal, so their identities count, which last as long as ``_reported`` keeps the events.
        """
        for event in given:
            if id(event) not in self._reported:
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


class GobblinResource(dg.ConfigurableResource["GobblinResource"]):
    """Runs the job of a function under ``@gobblin_assets``. It has no settings: the job's other resources have them."""

    def run(self, context: dg.AssetExecutionContext, *, datasets: Sequence[str] = ()) -> Iterator[PublishedEvent]:
        """Run what Dagster selected, as the job's own assets do, before this returns.

        ``datasets``: of what is selected, these alone, by URN. Gives the materializations and check results of the run;
        Dagster has them already, so that it makes no difference whether the function yields them. Behind them, a failed
        dataset raises Failure, or RetryRequested for another try of the whole function; where the function does not
        read so far, it is raised when the function has ended. RejectedError if ``context`` is not that of such a
        function.
        """
        return find_own_run(context).materialize(context, datasets)
