"""The driver: executes sealed sequences and finishes them. Live runs and recovery use this same code.

``execution`` executes the steps; a sequence is finished only after all of its steps were found done.
"""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.commit.batches import do_together
from gobblin_assets.commit.execution import Execution, Executor
from gobblin_assets.commit.sequence import Publication, SealedSequence, SequenceRecord
from gobblin_assets.commit.step_world import OpenFileSystem
from gobblin_assets.commit.store import SequenceFinisher
from gobblin_assets.errors import ConflictError, FencedError, GobblinError, OutcomeUnknownError, RetryableError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import SequenceId
from gobblin_assets.state.leases import Lease

PUBLISH_TRIES_MAX: Final = 5
BACK_OFF_S_FIRST: Final = 5.0
BACK_OFF_S_MAX: Final = 3600.0
PASSING_S: Final = 60.0
"""A publication whose failure passes by itself is tried again so often, however long it lasts."""


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver of one process.

    ``require`` raises FencedError when the lease is too old to start another piece of work. A sequence that failed
    ``tries_max`` times is BLOCKED. An error that passes by itself is no failed try.
    """

    store: SequenceFinisher
    open_file_system: OpenFileSystem
    require: Callable[[Lease], None]
    tries_max: int = PUBLISH_TRIES_MAX
    sleep: Callable[[float], None] = time.sleep

    def publish(self, sequence_id: SequenceId, lease: Lease) -> Publication:
        """Execute and finish a PREPARED sequence; count the try if it fails.

        Raises:
            FencedError: another process took the dataset over; nothing was counted.
            GobblinError: any other family; unless the failure passes by itself, the try was counted, and the sequence
                may be BLOCKED now.

        """
        (outcome,) = self.publish_all([(sequence_id, lease)])
        if isinstance(outcome, GobblinError):
            raise outcome
        return outcome

    def publish_all(self, prepared: Sequence[tuple[SequenceId, Lease]]) -> list[Publication | GobblinError]:
        """The same for sequences of different datasets: the result or error of ``publish`` for each, in their order.

        They share reads and writes of the log, and waits for the disk.
        """
        reach(Failpoint.SEALED_BEFORE_EXECUTE)
        outcomes: dict[SequenceId, Publication | GobblinError] = {}
        executions = [Execution(sealed, lease) for sealed, lease in self._load(prepared, outcomes)]
        Executor(self.store, self.open_file_system, self.require, self.sleep).execute_all(executions)
        executed = [each for each in executions if each.error is None]
        for each, error in zip(
            executed, do_together(executed, self._finish, lambda each: each.sealed.order.planned_rows), strict=True
        ):
            each.error = error
        outcomes |= {each.sequence_id: each.error for each in executions if each.error is not None}
        failures = {sequence_id: error for sequence_id, error in outcomes.items() if isinstance(error, GobblinError)}
        outcomes |= self._count_failures(failures, dict(prepared))
        self._load_publications([each.sequence_id for each in executions if each.error is None], outcomes)
        return [outcomes[sequence_id] for sequence_id, _lease in prepared]

    def _load(
        self,
        prepared: Sequence[tuple[SequenceId, Lease]],
        outcomes: dict[SequenceId, Publication | GobblinError],
    ) -> list[tuple[SealedSequence, Lease]]:
        loaded: dict[SequenceId, SealedSequence] = {}

        def load(some: Sequence[tuple[SequenceId, Lease]]) -> None:
            found = self.store.load_sealed(*(sequence_id for sequence_id, _lease in some))
            loaded.update({sealed.order.sequence_id: sealed for sealed in found})

        for (sequence_id, _lease), error in zip(prepared, do_together(prepared, load), strict=True):
            if error is not None:
                outcomes[sequence_id] = error
        return [(loaded[sequence_id], lease) for sequence_id, lease in prepared if sequence_id in loaded]

    def _load_publications(
        self, finished: Sequence[SequenceId], outcomes: dict[SequenceId, Publication | GobblinError]
    ) -> None:
        def load(some: Sequence[SequenceId]) -> None:
            outcomes.update({each.sequence_id: each for each in self.store.load_publications(*some)})

        errors = zip(finished, do_together(finished, load), strict=True)
        outcomes.update({sequence_id: error for sequence_id, error in errors if error is not None})

    def _finish(self, executed: Sequence[Execution]) -> None:
        self.store.finish_all({each.sequence_id: each.lease.fence for each in executed})

    def _count_failures(
        self, failures: Mapping[SequenceId, GobblinError], leases: Mapping[SequenceId, Lease]
    ) -> dict[SequenceId, GobblinError]:
        """Count a failed try of each sequence, unless its outcome is unknown, the failure passes by itself, or the log
        refuses the count.

        Returns the errors of sequences that are now BLOCKED; each says what a person can do.
        """
        blocked: dict[SequenceId, GobblinError] = {}
        for sequence_id, error in failures.items():
            if isinstance(error, FencedError | OutcomeUnknownError):
                continue
            try:
                if isinstance(error, RetryableError) and error.passes:
                    self._put_off(sequence_id, leases[sequence_id], error)
                    continue
                record = self._record_failure(sequence_id, leases[sequence_id], error)
                if record.state is SequenceState.BLOCKED:
                    blocked[sequence_id] = _say_blocked(error, record)
            except (RetryableError, OutcomeUnknownError):
                # The log is out of reach: do not wait for it again for each of the others.
                break
            except GobblinError:
                # The dataset was taken over meanwhile, or the log has nothing to try (it may have gone back to before
                # the seal, or before the sequence). The caller needs the original error.
                continue
        return blocked

    def _put_off(self, sequence_id: SequenceId, lease: Lease, error: GobblinError) -> None:
        """Say in the log why it is not done; whoever recovers what is due leaves it alone for a while."""
        text = f"{type(error).__name__}: {error}"
        self.store.defer(sequence_id, fence=lease.fence, error=text, retry_in_s=PASSING_S)

    def _record_failure(self, sequence_id: SequenceId, lease: Lease, error: GobblinError) -> SequenceRecord:
        failed_tries = self.store.get(sequence_id).failed_tries
        is_last = not isinstance(error, ConflictError) and failed_tries + 1 >= self.tries_max
        return self.store.record_failure(
            sequence_id,
            fence=lease.fence,
            # On the last try the hint is left out: it speaks of a next try.
            error=f"{type(error).__name__}: {error.message if is_last else error}",
            tries_max=self.tries_max,
            retry_in_s=min(BACK_OFF_S_MAX, BACK_OFF_S_FIRST * 2**failed_tries),
            # A repetition can't resolve a contradiction: a person must look.
            block=isinstance(error, ConflictError),
        )


def _say_blocked(error: GobblinError, record: SequenceRecord) -> GobblinError:
    """The same error, with the ways out. Only a contradiction's hint is kept: other hints speak of a next try."""
    said = copy.copy(error)
    said.__cause__ = error.__cause__
    tries = "failed try" if record.failed_tries == 1 else "failed tries"
    before = f"{error.hint} " if isinstance(error, ConflictError) and error.hint else ""
    said.hint = (
        f"{before}The publication is BLOCKED after {record.failed_tries} {tries}, until a person decides: "
        f"{describe_ways_out(record.sequence_id)}"
    )
    return said


def describe_ways_out(sequence_id: SequenceId) -> str:
    """The commands that a person can use on a BLOCKED sequence."""
    return (
        f"`gobblin-assets commit resume {sequence_id}` tries it again, and "
        f"`gobblin-assets commit abandon {sequence_id} --reason …` abandons it."
    )
