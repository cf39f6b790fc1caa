"""Tidies up after a run: staging, retired files, old publications in the log, and old history."""

from collections.abc import Callable, Mapping
from typing import Final

from gobblin_assets.commit.batches import in_bounds
from gobblin_assets.commit.cleanup import Cleanup
from gobblin_assets.commit.folding import TIDY_S
from gobblin_assets.errors import GobblinError
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.job_rules import JobRules
from gobblin_assets.run.run_values import RunPorts
from gobblin_assets.state.leases import Lease

RUNS_FORGOTTEN_MAX: Final = 10_000
"""By one look."""


class Tidying:
    """A failure here never fails a run: it is reported, and the work is left to the next run."""

    def __init__(self, rules: JobRules, ports: RunPorts, job: JobName, require: Callable[[Lease], None]) -> None:
        self._rules = rules
        self._ports = ports
        self._job = job
        self._cleanup = Cleanup(ports.stores.commits, ports.open_file_system, ports.interrupt, require)
        self._forget_at_s = float("-inf")

    def clean(self, leases: Mapping[DatasetUrn, Lease]) -> None:
        """Clean datasets. Their log must not be behind their storage."""
        try:
            self._ports.destination.require()
        except Exception as error:  # noqa: BLE001  the next run does it
            # On a destination that is not there, all files would count as removed.
            self._ports.say(f"cleanup of {len(leases)} datasets is left to the next run: {error}")
            return
        for some in in_bounds(list(leases)):
            self._clean_some({urn: leases[urn] for urn in some})
        self._forget_runs()

    def _clean_some(self, leases: Mapping[DatasetUrn, Lease]) -> None:
        try:
            outcomes = self._cleanup.clean_all(
                list(leases.values()),
                root_uri=self._ports.destination.root_uri,
                retire_grace_s=self._rules.retire_grace_s,
                fold=self._rules.log.bounds,
            )
        except Exception as error:  # noqa: BLE001  the next run does it
            self._ports.say(f"cleanup of {len(leases)} datasets is left to the next run: {error}")
            return
        for urn, outcome in zip(leases, outcomes, strict=True):
            try:
                if isinstance(outcome, GobblinError):
                    raise outcome
                self._ports.destination.prune(urn)
            except Exception as error:  # noqa: BLE001  the next run does it
                self._ports.say(f"{urn}: cleanup is left to the next run: {error}")

    def _forget_runs(self) -> None:
        """Once a day, since a stream cleans after each publication."""
        now_s = self._ports.clock.monotonic()
        if now_s < self._forget_at_s:
            return
        self._forget_at_s = now_s + TIDY_S
        older_than_s = self._rules.log.bounds.history_s
        try:
            self._ports.stores.runs.forget(self._job, older_than_s=older_than_s, limit=RUNS_FORGOTTEN_MAX)
        except Exception as error:  # noqa: BLE001  the next run does it
            self._ports.say(f"old history is left to the next run: {error}")
