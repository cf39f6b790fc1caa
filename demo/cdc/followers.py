"""The workers that follow the shop's tables: which of them reads the slot, and how far they are."""

import time
from collections.abc import Mapping

from demo.cdc.places import CLONE, DEMO, JOB, job_file
from demo.cdc.shop_database import TABLES, ShopDatabase
from demo.cdc.writers import ShopWriters
from demo.stage import console
from demo.worker_processes import Worker, WorkerProcesses
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.stores import Stores

_MIB = 1 << 20


def urn_of(table: str) -> DatasetUrn:
    return DatasetUrn(f"public.{table}")


class Followers(WorkerProcesses):
    """``WorkerProcesses``: one reads the slot, the others stand by. ``kept_max``: the most WAL that was seen."""

    def __init__(self, stores: Stores, shop: ShopDatabase, writers: ShopWriters) -> None:
        super().__init__(CLONE, DEMO, job_file())
        self._stores = stores
        self._shop = shop
        self._writers = writers
        self.kept_max = 0

    def find_reader(self) -> Worker | None:
        """The one that holds lanes."""
        states = self._stores.datasets.load(JobName(JOB), [urn_of(table) for table in TABLES])
        found = self._stores.lanes.load(*(state.dataset_id for state in states.values()))
        owners = {str(lane.owner).rpartition(":")[2] for each in found.values() for lane in each.lanes if lane.is_live}
        return next((worker for worker in self.live if str(worker.process.pid) in owners), None)

    def require_reader(self) -> Worker:
        self.watch_until(lambda: self.find_reader() is not None, "a worker that reads the slot")
        found = self.find_reader()
        if found is None:
            raise SystemExit("The worker that read the slot has ended.")
        return found

    def count_published(self) -> int:
        urns = [urn_of(table) for table in TABLES]
        found = (self._stores.published.find(JobName(JOB), urn, role=Role.DATA) for urn in urns)
        return sum(segment.row_count for each in found if each for segment in each.segments)

    def list_positions(self) -> Mapping[str, int]:
        """Up to where the log of each table is published; 0 before its copy is."""
        states = self._stores.datasets.load(JobName(JOB), [urn_of(table) for table in TABLES])
        return {
            urn: int(str(key.watermark.value)) if key.watermark else 0
            for urn, state in states.items()
            for key in state.keys.values()
        }

    def watch_copied(self, *tables: str) -> None:
        def are_copied() -> bool:
            positions = self.list_positions()
            return all(positions.get(urn_of(table), 0) > 0 for table in tables)

        self.watch_until(are_copied, f"a copy of {', '.join(tables)}")
        self.say_line()

    def watch_published(self, end: int) -> None:
        """Until all tables are published up to this place of the server's log."""
        self.watch_until(lambda: min(self.list_positions().values()) >= end, "the publication of all changes")
        self.say_line()

    def say_line(self) -> None:
        self._writers.require_alive()
        log, reader, positions = self._shop.look_at_log(), self.find_reader(), self.list_positions().values()
        self.kept_max = max(self.kept_max, log.kept_bytes or 0)
        behind = (
            f"{(log.end - min(positions)) / _MIB:.1f} MiB behind" if positions and min(positions) else "a copy to come"
        )
        kept = "no slot yet" if log.kept_bytes is None else f"{log.kept_bytes / _MIB:4.1f} MiB of WAL kept"
        seconds, committed = time.monotonic() - self._begun_s, self._writers.committed
        console.print(
            f"{seconds:5.1f} s {committed:6,} transactions {self.count_published():8,} rows published "
            f"{behind:>15}, {kept}; {self._say_roles(reader)}"
        )

    def _say_roles(self, reader: Worker | None) -> str:
        waiting = [f"{worker.number} waits" for worker in self.live if worker is not reader]
        return (
            f"worker {', '.join(([f'{reader.number} reads'] if reader else []) + waiting)}"
            if self.live
            else "no worker"
        )
