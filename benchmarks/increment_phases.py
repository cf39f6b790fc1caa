"""The phases of a small increment, with the same names for every way to start its run."""

from typing import Final

from gobblin_assets.failpoints import Failpoint

ROWS: Final = 1_000
SPLIT: Final = {"work_unit_rows": 1_000_000}

ENDS: Final[dict[str, str]] = {
    Failpoint.LEASE_TAKEN: "parse, probe, register, leases",
    Failpoint.SEQUENCE_BEGUN: "recover, open the source, plan",
    Failpoint.ATTEMPT_REGISTERED: "register the attempt",
    Failpoint.ATTEMPT_WRITTEN: "read and write, footers",
    Failpoint.ATTEMPT_DURABLE: "sync files and directories",
    Failpoint.STAGE_COMMITTED: "T1, stage",
    Failpoint.SEAL_COMMITTED: "T2, seal",
    Failpoint.VERIFIED_BEFORE_FINISH: "execute, sync, verify",
    Failpoint.FINISH_COMMITTED: "T3, finish",
}
"""Each phase by the failpoint that ends it, in their order."""

POSTGRES: Final = "open Postgres"
SESSION: Final = "open the Connect session"
AFTER: Final = "events, cleanup, end of the run (after T3)"

ALL: Final = "call of the run function to T3 acknowledged"
FRESH_ALL: Final = "start of the process to T3 acknowledged"
