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

OF_A_REUSE = (
    Failpoint.REUSE_MARKED,
    Failpoint.REUSE_CAPTURED,
    Failpoint.FILE_STAGED,
    Failpoint.FILE_JOURNALED,
)
"""Of an attempt that copies files, after ATTEMPT_REGISTERED: what failed attempts left is captured and taken."""
OF_A_CONVERSION = (Failpoint.CONVERSION_BEGUN,)
"""Of the copy of a file that is converted, before ATTEMPT_WRITTEN."""

OF_CLEANUP = (Failpoint.CLEANUP_MARKED, Failpoint.CLEANUP_CAPTURED, Failpoint.CLEANUP_REMOVED)

OF_A_SINK = (
    Failpoint.DESTINATION_MARKED,
    Failpoint.DESTINATION_BOUND,
    Failpoint.LEASE_TAKEN,
    *OF_A_PUBLICATION,
    *OF_CLEANUP,
    Failpoint.FOLD_SEGMENTS_JOINED,
    Failpoint.FOLD_COMMITTED,
)
"""Of a worker that begins with an empty log, without recovery and without a change of the count of lanes."""

OF_A_FLOW = (
    Failpoint.FLOW_STORED,
    Failpoint.SEND_BEGUN,
    Failpoint.TICKET_SENT,
    Failpoint.SEND_MARKED,
    Failpoint.CANCEL_MARKED,
    Failpoint.REPORTS_READ,
    Failpoint.REPORTS_FOLDED,
)
"""Of a flow from its request to its end; CANCEL_MARKED where it is deleted while it runs."""

OF_A_MOVE = (Failpoint.MOVE_BEGUN,)
"""Of a flow whose executor is lost, besides those of a flow."""

OF_A_FIRE = (Failpoint.FLOWS_FIRED, Failpoint.PENDING_LAUNCHED)
"""Of a flow with a schedule, between its request and the first ticket."""

OF_AN_OWN_RUN = (Failpoint.OWN_TICKETS_LISTED, Failpoint.TICKET_ADOPTED, Failpoint.ADOPTION_MARKED)
"""Of a run that an executor begins by itself, and that a service makes an execution of."""

OF_A_RESCALE = (Failpoint.VNODES_MOVED,)

OF_A_LOAD = (
    Failpoint.LOAD_COPIED,
    Failpoint.LOAD_BEFORE_COMMIT,
    Failpoint.LOAD_COMMITTED,
    Failpoint.GIVE_UP_BEFORE_COMMIT,
)
"""Loads of rows into tables, and giving one up: tests/crash/test_loaded_sinks.py."""
OF_A_SLOT = (Failpoint.SLOT_MADE, Failpoint.COPY_READ, Failpoint.SLOT_CONFIRMED)
"""Of a worker that follows a database's change log, besides those of a sink."""

OF_A_REPORT = (Failpoint.REPORT_BEGUN, Failpoint.REPORT_SENT, Failpoint.REPORT_ENDED)
"""Of whoever tells Dagster what commands did."""

OF_A_TICKET = (
    Failpoint.TICKET_SENT,
    Failpoint.TICKET_CLAIMED,
    Failpoint.CLAIMS_RENEWED,
    Failpoint.TICKET_REPORTED,
    Failpoint.TICKET_ENDED,
    Failpoint.DEAD_RUN_ENDED,
    Failpoint.TICKETS_FORGOTTEN,
)
"""Of whoever sends a ticket, of its executor, and of the process of an attempt: tests/crash/test_tickets.py."""

OF_A_WIRE = (
    Failpoint.TICKET_RECEIVED,
    Failpoint.REPORTS_PRODUCED,
    Failpoint.REPORTS_TOLD,
    Failpoint.REPORTS_TAKEN,
)
"""Of the two ends of a wire over Kafka: tests/crash/test_wires.py."""
