"""One kind of runner, from the first start to the verdict: torture, rest, judgement."""

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from tests.torture import children
from tests.torture.disturber import Disturber, Strike
from tests.torture.observer import Connection, Observer, Remembered, Subject, Watch
from tests.torture.runner_process import Ending, Process
from tests.torture.runners import RUNNER_S_MAX, Runners
from tests.torture.schedule import LEASE_TTL_S, ON_THE_BROKER, ON_THE_SERVER, Injection, RunnerPlan, plan_disturbances
from tests.torture.server import Victim
from tests.torture.tally import Tally

REST_ROUNDS_MAX: Final = 15
CLEANING_ROUNDS_MAX: Final = 5
_RECOVERED = re.compile(
    r"completed sequence ([0-9a-f-]{36}) of an earlier (?:run|holder)|of \d+: completed .*, sequence ([0-9a-f-]{36})"
)
_ATTEMPTS_LEFT: Final = "SELECT count(*) FROM gobblin.attempt WHERE cleaned_at IS NULL"
# Attempts that never reported are looked at for a day, and what failed copies left is kept for a day. Times in the log
# are moved behind that day.
_AGE: Final = (
    """
    UPDATE gobblin.attempt
       SET started_at = started_at - interval '2 days', ended_at = ended_at - interval '2 days'
     WHERE cleaned_at IS NULL
    """,
    """
    UPDATE gobblin.commit_sequence
       SET done_at = done_at - interval '2 days', aborted_at = aborted_at - interval '2 days'
    """,
)
_BLOCKED: Final = "SELECT count(*) FROM gobblin.commit_sequence WHERE state = 'BLOCKED'"
_SEQUENCES: Final = """
    SELECT CASE WHEN state = 'DONE' THEN 'sequences published'
                WHEN prepared_at IS NOT NULL THEN 'sealed sequences given up'
                ELSE 'sequences never sealed' END, count(*)
      FROM gobblin.commit_sequence GROUP BY 1
"""
_SHARED: Final = """
    SELECT 'reads that several datasets shared', count(*)
      FROM (SELECT FROM gobblin.attempt GROUP BY tag HAVING count(DISTINCT dataset_id) > 1) s
    HAVING count(*) > 0
"""


class Arena(Protocol):
    """The world of one kind of runner: server, sources, destinations, and how a runner is started."""

    kind: str
    tally: Tally
    victim: Victim
    runners: Runners
    at_work_max: int
    disturbed_every_s: float

    def strikes(self) -> Mapping[Injection, Strike]:
        """The disturbances of all runners that are possible here, with their functions."""
        ...

    def acts(self) -> Mapping[Injection, Strike]:
        """What a stranger does to the sources meanwhile, as ``strikes``."""
        ...

    def start(self, plan: RunnerPlan) -> Process: ...

    def plan_rest(self) -> Sequence[RunnerPlan]:
        """Undisturbed runs of everything, one after the other."""
        ...

    def plan_resume(self) -> RunnerPlan:
        """A runner that resumes BLOCKED sequences."""
        ...

    def feed(self) -> None:
        """Begin to add rows to the sources."""
        ...

    def stop_feeding(self) -> None: ...

    def mend(self) -> None:
        """Undo all disturbances that still last."""
        ...

    def subjects(self) -> Sequence[Subject]: ...

    def watch(self) -> Watch:
        """What the observer of this kind looks at."""
        ...

    def judge(self, seen: Remembered) -> None:
        """Put the verdict into the tally, after everything has come to rest."""
        ...

    def close(self, *, keep: bool) -> None: ...


class Campaign:
    """``say`` gets progress for a person who waits."""

    def __init__(self, arena: Arena, seed: str, interrupted: threading.Event, say: Callable[[str], None]) -> None:
        self.arena = arena
        self.tally = arena.tally
        self._seed = seed
        self._interrupted = interrupted
        self._say = say

    def run(self, duration_s: float) -> None:
        """Torture for so long, then rest, then put the verdict into the tally."""
        arena, interrupted = self.arena, self._interrupted
        observer = Observer(arena.victim.connect, arena.subjects(), arena.watch(), self.tally)
        # Kills and faults come in the middle of a stranger's acts as well.
        disturbers = [self._plan(arena.strikes(), duration_s), self._plan(arena.acts(), duration_s)]
        try:
            arena.feed()
            for disturber in disturbers:
                disturber.start()
            until = time.monotonic() + duration_s
            while time.monotonic() < until and not interrupted.is_set():
                arena.runners.step(more=True)
            for disturber in disturbers:
                disturber.stop()
            arena.stop_feeding()
            if not interrupted.is_set():
                self._say(f"{arena.kind}: all injections are over; waking everybody, then runs until rest")
                self._end_runners()
                self._rest()
        finally:
            arena.runners.kill_everybody()
            observer.stop()
        if not interrupted.is_set():
            self._judge(observer)

    def _plan(self, strikes: Mapping[Injection, Strike], duration_s: float) -> Disturber:
        planned = plan_disturbances(self._seed, duration_s, tuple(strikes), every_s=self.arena.disturbed_every_s)
        return Disturber(planned, strikes, self.tally)

    def progress(self) -> str:
        tally = self.tally
        hits = tally.of(*ON_THE_SERVER, *ON_THE_BROKER, Injection.SPARK_KILLED)
        return (
            f"{self.arena.kind}: {tally.of('runs')} runs, {tally.of('runs that were killed')} killed,"
            f" {tally.of('zombies woken')} zombies, {tally.of('runs that committed')} committed,"
            f" {hits} servers hit, {tally.of('samples')} samples"
        )

    # Rest -----------------------------------------------------------------------------------------------

    def _end_runners(self) -> None:
        arena = self.arena
        arena.victim.start()
        arena.mend()
        until = time.monotonic() + RUNNER_S_MAX
        while not arena.runners.is_over() and time.monotonic() < until and not self._interrupted.is_set():
            arena.runners.wake_everybody()
            arena.runners.step(more=False)
        if not arena.runners.is_over() and not self._interrupted.is_set():
            self.tally.violate(f"these did not end after everything was mended: {arena.runners.describe()}")
        arena.runners.kill_everybody()

    def _rest(self) -> None:
        for _round in range(REST_ROUNDS_MAX):
            # Rounds must also wait for this: the leases of the dead run out.
            if self._interrupted.wait(LEASE_TTL_S) or self._run_all():
                break
        else:
            self.tally.violate(f"{REST_ROUNDS_MAX} rounds of runs did not bring everything to an end")
        with self.arena.victim.connect() as connection:
            for statement in _AGE:
                connection.execute(statement)
        for _round in range(CLEANING_ROUNDS_MAX):
            if self._interrupted.is_set() or not self._count(_ATTEMPTS_LEFT):
                break
            self._run_all()

    def _run_all(self) -> bool:
        """Whether a run of everything, after all blocked sequences were resumed, found nothing to do."""
        blocked = self._count(_BLOCKED)
        self.tally.add("blocked sequences that a person resumed", blocked)
        for _ in range(blocked):
            self._run_one(self.arena.plan_resume())
        endings = [self._run_one(plan) for plan in self.arena.plan_rest()]
        return all(ending == Ending.NOTHING for ending in endings)

    def _run_one(self, plan: RunnerPlan) -> int | None:
        process = self.arena.start(plan)
        until = time.monotonic() + RUNNER_S_MAX
        while not children.join(process, 0.1) and time.monotonic() < until and not self._interrupted.is_set():
            continue
        if children.exit_code(process) is None:
            process.kill()
        code = children.exit_code(process)
        if code not in (Ending.NOTHING, Ending.COMMITTED) and not self._interrupted.is_set():
            self._say(f"{self.arena.kind}: a run on the way to rest ended with {code}")
            self.tally.add("failures on the way to rest")
        return code

    def _count(self, query: str) -> int:
        with self.arena.victim.connect() as connection:
            row = connection.execute(query.encode()).fetchone()
        return 0 if row is None else int(str(row[0]))

    # Verdict --------------------------------------------------------------------------------------------

    def _judge(self, observer: Observer) -> None:
        self.arena.judge(observer.remember())
        recovered: set[str] = set()
        for log in self.arena.runners.logs.glob("*.log"):
            recovered.update("".join(found) for found in _RECOVERED.findall(log.read_text(encoding="utf-8")))
        self.tally.add("sequences finished by another run", len(recovered))
        self.tally.add("datasets", len(self.arena.subjects()))
        with self.arena.victim.connect() as connection:
            self._count_sequences(connection)

    def _count_sequences(self, connection: Connection) -> None:
        for query in (_SEQUENCES, _SHARED):
            for name, count in connection.execute(query).fetchall():
                self.tally.add(str(name), int(str(count)))
