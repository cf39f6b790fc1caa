"""The sink's workers, each a process of the command line, and what the log says of them."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from demo.sink.orders import OrderWriters
from demo.sink.places import CLONE, DEMO, JOB, TOPIC, job_file
from demo.stage import console
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.stores import Stores

LINE_EVERY_S: Final = 2.0
RATE_OVER_S: Final = 1.5
LOOK_S: Final = 0.2
WAIT_S_MAX: Final = 90.0
END_S_MAX: Final = 60.0


@dataclass(frozen=True, slots=True)
class Worker:
    number: int
    process: "subprocess.Popen[bytes]"

    @property
    def name(self) -> str:
        return f"worker {self.number}"

    @property
    def said(self) -> str:
        return log_of(self.number)


class Workers:
    """In the block ``with``; no worker outlives it."""

    def __init__(self, stores: Stores, writers: OrderWriters) -> None:
        self._stores = stores
        self._writers = writers
        self._all: list[Worker] = []
        self._begun_s = time.monotonic()
        self._line_at_s = 0.0
        self._counts: list[tuple[float, int]] = [(self._begun_s, 0)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for worker in self._all:
            worker.process.kill()
            worker.process.wait(END_S_MAX)

    @property
    def live(self) -> list[Worker]:
        return [worker for worker in self._all if worker.process.poll() is None]

    def start(self, count: int) -> None:
        for _number in range(count):
            number = len(self._all) + 1
            console.print(f"[cyan]$ gobblin-assets sink run {job_file()}[/cyan]    (worker {number})")
            with (DEMO / f"worker-{number}.log").open("wb") as log:
                process = subprocess.Popen(  # noqa: S603  our own command, as separate words
                    [sys.executable, "-m", "gobblin_assets.cli", "sink", "run", job_file()],
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(CLONE), _search_path())))},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            self._all.append(Worker(number, process))

    def kill(self, worker: Worker) -> None:
        worker.process.kill()
        code = worker.process.wait(END_S_MAX)
        console.print(f"[red]{worker.name} is killed: exit code {code} (SIGKILL)[/red]")

    def end(self, workers: list[Worker]) -> None:
        """By SIGTERM: each ends behind a cut, and gives its lanes back."""
        for worker in workers:
            worker.process.send_signal(signal.SIGTERM)
        for worker in workers:
            self.require_end(worker)

    def require_end(self, worker: Worker) -> None:
        code = worker.process.wait(END_S_MAX)
        if code != 0:
            raise SystemExit(f"{worker.name} ended with {code}:\n{worker.said}")
        console.print(f"{worker.name} has ended: exit code 0")

    def watch(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        self.watch_until(lambda: time.monotonic() >= until_s, "the watch's end")

    def watch_until(self, is_reached: Callable[[], bool], what: str) -> None:
        """Print a line now and then. SystemExit, with what the workers said, if it takes too long."""
        end_s = time.monotonic() + WAIT_S_MAX
        while not is_reached():
            if time.monotonic() >= end_s:
                said = "\n".join(f"{worker.name}:\n{worker.said[-2_000:]}" for worker in self._all)
                raise SystemExit(f"{what} has not come in {WAIT_S_MAX:.0f} s. {said}")
            if time.monotonic() >= self._line_at_s:
                self._line_at_s = time.monotonic() + LINE_EVERY_S
                self.say_line()
            time.sleep(LOOK_S)

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

    def list_completed(self) -> list[str]:
        """What workers said of publications that an earlier holder of their lane had left open."""
        return [
            f"{worker.name}: {line}"
            for worker in self._all
            for line in worker.said.splitlines()
            if "of an earlier holder" in line
        ]

    def _owners(self) -> list[str]:
        """The process of each lane that is held."""
        state = self._stores.datasets.load(JobName(JOB), [DatasetUrn(TOPIC)]).get(DatasetUrn(TOPIC))
        if state is None:
            return []
        found = self._stores.lanes.load(state.dataset_id)[state.dataset_id]
        return [str(lane.owner).rpartition(":")[2] for lane in found.lanes if lane.is_live]


def log_of(number: int) -> str:
    return (DEMO / f"worker-{number}.log").read_text(encoding="utf-8", errors="replace")


def _search_path() -> str | None:
    return os.environ.get("PYTHONPATH")
