"""Failpoints in the order in which they are reached, for runs, streams, compactions and recovery."""

from gobblin_assets.failpoints import Failpoint

OF_EXECUTION = (
    Failpoint.MARKER_WRITTEN,
    Failpoint.STEP_BEFORE,
    Failpoint.STEP_AFTER,
    Failpoint.EXECUTED_BEFORE_SYNC,
    Failpoint.SYNCED_BEFORE_VERIFY,
    Failpoint.VERIFIED_BEFORE_FINISH,
    Failpoint.FINISH_COMMITTED,
)
OF_A_PUBLICATION = (
    Failpoint.SEQUENCE_BEGUN,
    Failpoint.ATTEMPT_REGISTERED,
    Failpoint.ATTEMPT_WRITTEN,
    Failpoint.ATTEMPT_DURABLE,
    Failpoint.STAGE_COMMITTED,
    Failpoint.STAGED_BEFORE_SEAL,
    Failpoint.SEAL_COMMITTED,
    Failpoint.SEALED_BEFORE_EXECUTE,
    *OF_EXECUTION,
)
OF_A_CAPTURE = (Failpoint.ATTEMPTS_CLAIMED, Failpoint.ATTEMPTS_CAPTURED)
"""Of an execution under another fence than the sealer's, at given names: after MARKER_WRITTEN."""

OF_CLEANUP = (Failpoint.CLEANUP_MARKED, Failpoint.CLEANUP_CAPTURED, Failpoint.CLEANUP_REMOVED)
