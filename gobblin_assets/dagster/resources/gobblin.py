"""The resource that runs a job inside a function of the user's own."""

from collections.abc import Iterator, Sequence

import dagster as dg

from gobblin_assets.dagster.own_runs import PublishedEvent, find_own_run


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
