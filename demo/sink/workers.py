"""The sink's workers, and what the log says of them."""

import time
from collections import Counter
from typing import Final

from demo.sink.orders import OrderWriters
from demo.sink.places import CLONE, DEMO, JOB, TOPIC, job_file
from demo.stage import console
from demo.worker_processes import WorkerProcesses
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.stores import Stores

RATE_OVER_S: Final = 1.5


class Workers(WorkerProcesses):
    """``WorkerProcesses`` that share the lanes of one topic."""

    def __init__(self, stores: Stores, writers: OrderWriters) -> None:
        super().__init__(CLONE, DEMO, job_file())
        self._stores = stores
        self._writers = writers
        self._counts: list[tuple[float, int]] = [(self._begun_s, 0)]

    def watch_shares(self, *shares: int) -> None:
        """Until the live workers hold so many lanes each, in whatever order."""
        self.watch_until(lambda: sorted(self.shares().values()) == sorted(shares), f"shares of {shares} lanes")
        self.say_line()

    def shares(self) -> dict[str, int]:
        """How many lanes each live worker holds."""
        held = Counter(self._owners())
        return {worker.name: held[str(worker.process.pid)] for worker in self.live}

    def count_published(self) -> int:
        found = self._stores.published.find(JobName(JOB), DatasetUrn(TOPIC), role=Role.DATA)
        return sum(segment.row_count for segment in found.segments) if found else 0

    def say_line(self) -> None:
        now_s, published = time.monotonic(), self.count_published()
        before_s, before = next((each for each in reversed(self._counts) if now_s - each[0] >= RATE_OVER_S), (now_s, 0))
        self._counts.append((now_s, published))
        rate = (published - before) / (now_s - before_s) if before_s < now_s else 0.0
        shares = ", ".join(f"{name[7:]}: {held}" for name, held in self.shares().items()) or "no worker"
        console.print(
            f"{now_s - self._begun_s:5.1f} s  {self._writers.written:9,} written  {published:9,} published "
            f"{rate:8,.0f}/s   lanes of workers  {shares}"
        )

    def _owners(self) -> list[str]:
        """The process of each lane that is held."""
        state = self._stores.datasets.load(JobName(JOB), [DatasetUrn(TOPIC)]).get(DatasetUrn(TOPIC))
        if state is None:
            return []
        found = self._stores.lanes.load(state.dataset_id)[state.dataset_id]
        return [str(lane.owner).rpartition(":")[2] for lane in found.lanes if lane.is_live]
