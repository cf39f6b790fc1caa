"""One copy of a topic in a process of its own: by a worker of a sink, or by the loop that is written by hand.

The process reads its order as JSON; the last line of its answer has the seconds of its processor and of the wall, from
the end of its imports on.
"""

import json
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from benchmarks import kafka_consumer
from gobblin_assets.jobs.ingest.spark_engine import SparkEngine
from gobblin_assets.jobs.sink.running import run_worker
from gobblin_assets.spec.job_files import read_job_file


def _work(job_file: Path) -> None:
    stopping = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    run_worker(
        read_job_file(job_file), stopping.wait, spark=SparkEngine(), say=lambda line: print(line, file=sys.stderr)
    )


def _main() -> None:
    order = json.loads(sys.stdin.read())
    begun_s, used_s = time.monotonic(), time.process_time()
    if "job_file" in order:
        _work(Path(order["job_file"]))
    else:
        kafka_consumer.copy(order["bootstrap"], order["topic"], Path(order["directory"]))
    print(json.dumps([time.process_time() - used_s, time.monotonic() - begun_s]))


if __name__ == "__main__":
    _main()
