"""The tables of the commit log, in the Postgres schema ``gobblin``. The database's clock is the only one.

    destination       where each job publishes, and the identity of the destination that is there
    dataset           one row for each dataset (job, URN): its version, and the last accepted schema of the source
    lane              the places of a dataset's writers; each dataset has lane 0, a sink one for each writer
    lease             who may work on the lane now; ``fence`` grows with each owner
    sink_worker       the live workers of sinks, which share the lanes evenly, with their clocks and lags
    sink_window       up to where each partition that a sink publishes was reported
    sink_observation  when a sink's dataset was last observed
    watermark_key     the keys with positions of their own, their lanes, and their published positions
    run, run_dataset  history: each run of a job, and how each dataset partition left the run
    commit_sequence   one publication of one dataset partition, from BUILDING to DONE or ABORTED
    attempt           one write to one staging directory; history of tasks
    work_unit         planned and read work: a key's interval, and the position that was reached
    past_sequence     ids of sequences whose rows are gone, but which storage may still name
    segment           compressed steps of a sequence; once it is DONE, the list of the published files
    planned_move      the watermark moves that a sealed sequence will make when it is finished
    planned_interval  the intervals that it will then write to the ledger
    event_cursor      up to which version a dataset was delivered to a sink of events
    event_failure     failed publications that were delivered to a sink
    reporter          who reports a job's commands to Dagster, when that was, and why it could not be done
    ledger            which interval of which key which sequence published
    log_identity      the id of this log
    job_ticket        jobs that a service sends to executors
    ticket_claim      the attempts at them, each of one executor
    ticket_report     how far each attempt is, as the service reads it
    ticket_output     the last lines that the process of each attempt said
    executor_heartbeat  the processes that take tickets: when each was heard, what it can do
    log_drain         when nobody may claim tickets, so that the log can be upgraded
    wire_holder       which process of an executor reads its topic of tickets
    wire_place        up to where such a topic is in this log
    wired_ticket      tickets whose reports are told by a topic, and up to where they are
    rate_share        who copies under a rate that several drivers keep together, and until when

A partition of "" stands for a dataset without partitions: a Dagster partition key is never empty here.
"""

from gobblin_assets.db.table_metadata import SCHEMA, metadata
from gobblin_assets.db.tables.log import (
    attempt,
    commit_sequence,
    ledger,
    past_sequence,
    planned_interval,
    planned_move,
    run_dataset,
    segment,
    work_unit,
)
from gobblin_assets.db.tables.state import (
    dataset,
    destination,
    event_cursor,
    event_failure,
    lane,
    lease,
    rate_share,
    reporter,
    run,
    sink_observation,
    sink_window,
    sink_worker,
    watermark_key,
)
from gobblin_assets.db.tables.tickets import (
    executor_heartbeat,
    job_ticket,
    log_drain,
    log_identity,
    ticket_claim,
    ticket_output,
    ticket_report,
)
from gobblin_assets.db.tables.wires import wire_holder, wire_place, wired_ticket

__all__ = [
    "SCHEMA",
    "attempt",
    "commit_sequence",
    "dataset",
    "destination",
    "event_cursor",
    "event_failure",
    "executor_heartbeat",
    "job_ticket",
    "lane",
    "lease",
    "ledger",
    "log_drain",
    "log_identity",
    "metadata",
    "past_sequence",
    "planned_interval",
    "planned_move",
    "rate_share",
    "reporter",
    "run",
    "run_dataset",
    "segment",
    "sink_observation",
    "sink_window",
    "sink_worker",
    "ticket_claim",
    "ticket_output",
    "ticket_report",
    "watermark_key",
    "wire_holder",
    "wire_place",
    "wired_ticket",
    "work_unit",
]
