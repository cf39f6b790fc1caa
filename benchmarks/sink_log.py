"""A long log of a sink, whose lanes publish in turns: what folding leaves, and how long a lane and a read take.

Publications are written into the tables as T1 to T3 leave them; the product's own code does everything after that.
"""

import time
import uuid

from benchmarks.long_log import LOG_MB_MAX, PLAN_S_MAX, PUBLICATIONS, PUBLICATIONS_QUICK, LongLog
from benchmarks.sink_world import bound_at_most
from benchmarks.tables import Options, Samples, Table
from benchmarks.world import World
from gobblin_assets.commit.abandonment import Abandonment
from gobblin_assets.commit.driver import Driver
from gobblin_assets.commit.markers import check_log
from gobblin_assets.commit.recovery import recover_lane
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.state import LaneId, RunId
from gobblin_assets.state.datasets import NewRun
from gobblin_assets.state.leases import Holder, Lease

LANES = 16
TAKE_S_MAX = 0.1

_TTL_S = 60.0
_TAKE, _PLAN = "a lane is taken", "a read is planned"


def measure(world: World, options: Options) -> list[Table]:
    """The log is made once, because that takes long. Then each lane is taken, and reads are planned."""
    count = PUBLICATIONS_QUICK if options.quick else PUBLICATIONS
    made = LongLog(world, lanes=LANES)
    folds, samples, parts = Samples(), Samples(), Samples()
    begun = time.monotonic()
    size = made.grow(count, folds)
    made_s = time.monotonic() - begun
    made.stores.leases.release(made.leases)
    for lease in made.leases:
        samples.add(_TAKE, _time_taking(made, lease.lane_id))
    for _run in range(max(3, options.runs)):
        begun = time.monotonic()
        made.plan(parts)
        samples.add(_PLAN, time.monotonic() - begun)
    rows = (
        *(samples.row(name) for name in samples.by_name),
        *(parts.row(name) for name in parts.by_name),
        *(folds.row(name) for name in folds.by_name),
    )
    notes = (
        (
            f"{count:,} publications of one file and one vnode each, by {LANES} lanes in turns; made and folded in "
            f"{made_s:.0f} s. All but the newest are folded."
        ),
        (
            f"A publication takes {size.unfolded_bytes:,.0f} bytes in the log before it is folded; the log was "
            f"{size.largest_mb:.1f} MB at most."
        ),
        (
            "A lane is taken when its lease is there, log and storage are compared, and its recovery has found nothing "
            f"open; each of the {LANES} lanes once."
        ),
        bound_at_most("the log, folded", size.left_mb, LOG_MB_MAX, " MB"),
        bound_at_most("taking a lane", samples.median(_TAKE), TAKE_S_MAX, " s"),
        bound_at_most("planning a read", samples.median(_PLAN), PLAN_S_MAX, " s"),
    )
    return [Table(f"A sink's log of {count:,} publications, folded", ("", "median", "min", "max"), rows, notes)]


def _time_taking(made: LongLog, lane_id: LaneId) -> float:
    """As a worker takes one. The lane is given back."""
    stores = made.stores
    run_id = RunId(uuid.uuid4())
    stores.runs.begin(NewRun(run_id, made.job, "benchmark"))
    fs, root = open_file_system(made.root)

    def require(_lease: Lease) -> None:
        pass

    begun = time.monotonic()
    (lease,) = stores.leases.take_lanes([lane_id], Holder("benchmark", run_id), ttl_s=_TTL_S)
    check_log(stores.commits, fs, root, made.job, made.urn, lease)
    driver = Driver(stores.commits, open_file_system, require)
    recover_lane(driver, Abandonment(stores.commits, open_file_system, lambda _attempt: None), lease)
    stores.lanes.load(made.dataset_id)
    spent_s = time.monotonic() - begun
    stores.leases.release([lease])
    return spent_s
