"""A node that only fires, as ``service serve`` does it: a look each half a second, until its order's time is over.

Its order is JSON on stdin, its answer is the last line of its output.
"""

import json
import sys
import time

from benchmarks.memory import peak_mb
from gobblin_assets.db.engine import open_external
from gobblin_assets.service.core_services import SCHEDULER_LOOK_EVERY_S
from gobblin_assets.service.postgres.schedules import PostgresScheduleStore
from gobblin_assets.service.scheduler import Scheduler


def main() -> None:
    order = json.loads(sys.stdin.readline())
    scheduler = Scheduler(PostgresScheduleStore(open_external(order["url"])))
    scheduler.look()
    print("ready", flush=True)
    begun_cpu_s, end = time.process_time(), time.monotonic() + order["seconds"]
    fired, busy_s = 0, 0.0
    while time.monotonic() < end:
        begun = time.monotonic()
        found = scheduler.look()
        fired += found
        if found:
            busy_s += time.monotonic() - begun
        time.sleep(SCHEDULER_LOOK_EVERY_S)
    cpu_s = time.process_time() - begun_cpu_s
    print(json.dumps([{"fired": fired, "busy_s": busy_s, "cpu_s": cpu_s, "peak_mb": peak_mb()}]))


if __name__ == "__main__":
    main()
