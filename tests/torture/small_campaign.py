"""Small runners, from the first start to the verdict."""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psycopg

from gobblin_assets.commit.machine import SequenceState
from gobblin_assets.errors import GobblinError
from gobblin_assets.model.state import DatasetId
from tests.support.lake import World
from tests.torture.arena import Arena, Feeder
from tests.torture.disturber import Disturber, strikes_on_the_disk, strikes_on_the_server
from tests.torture.history import Destination, check_history
from tests.torture.observer import Observer, Subject
from tests.torture.schedule import LEASE_TTL_S, ON_THE_SERVER, plan_disturbances
from tests.torture.small_runner import acknowledge
from tests.torture.small_runners import RUNNER_S_MAX, SmallRunners
from tests.torture.tally import Tally

DISTURBED_EVERY_S: Final = 7.0
REST_ROUNDS_MAX: Final = 12
_RECOVERED = re.compile(
    r"completed sequence ([0-9a-f-]{36}) of an earlier run|of \d+: completed .*, sequence ([0-9a-f-]{36})"
)


class SmallCampaign:
    """``refused``: why nothing may be mounted here; None where it may."""

    def __init__(self, home: Path, seed: str, tally: Tally, refused: str | None) -> None:
        self.tally = tally
        self._seed = seed
        self.arena = Arena(home, seed, tally, refused)
        self._subjects = {lake.name: tuple(Subject(lake.name, urn) for urn in lake.urns) for lake in self.arena.lakes()}

    def run(self, duration_s: float, interrupted: threading.Event, say: Callable[[str], None]) -> None:
        """Torture for so long, then rest, then the verdict into the tally."""
        arena = self.arena
        runners = SmallRunners(self._seed, arena.lakes, arena.victim, arena.proxies, arena.logs, self.tally)
        feeder = Feeder(arena, self._seed)
        subjects = [subject for of_job in self._subjects.values() for subject in of_job]
        observer = Observer(arena.victim.connect, subjects, self.tally)
        disturber = self._disturber(duration_s)
        try:
            disturber.start()
            until = time.monotonic() + duration_s
            while time.monotonic() < until and not interrupted.is_set():
                runners.step(more=True)
            feeder.stop()
            disturber.stop()
            if not interrupted.is_set():
                say("small: all injections are over; waking everybody, then runs until rest")
                self._rest(runners, interrupted)
        finally:
            observer.stop()
            runners.kill_everybody()
        if not interrupted.is_set():
            self._conclude(observer)

    def close(self, *, keep: bool) -> None:
        self.arena.close(keep=keep)

    def progress(self) -> str:
        tally = self.tally
        return (
            f"small: {tally.of('runs')} runs, {tally.of('runs that were killed')} killed,"
            f" {tally.of('zombies woken')} zombies, {tally.of('runs that committed')} committed,"
            f" {tally.of(*ON_THE_SERVER)} hits on Postgres, {tally.of('samples')} samples"
        )

    def _disturber(self, duration_s: float) -> Disturber:
        arena = self.arena
        kinds = (*ON_THE_SERVER, *arena.disturbances())
        planned = plan_disturbances(self._seed, duration_s, kinds, every_s=DISTURBED_EVERY_S)
        strikes = {**strikes_on_the_server(arena.victim), **strikes_on_the_disk(arena.mount)}
        return Disturber(planned, strikes, self.tally)

    # Rest -----------------------------------------------------------------------------------------------

    def _rest(self, runners: SmallRunners, interrupted: threading.Event) -> None:
        self.arena.victim.start()
        for proxy in self.arena.proxies.values():
            proxy.calm_down()
        until = time.monotonic() + RUNNER_S_MAX
        while not runners.is_over() and time.monotonic() < until and not interrupted.is_set():
            runners.wake_everybody()
            runners.step(more=False)
        if not runners.is_over():
            self.tally.violate(f"these did not end after everything was mended: {runners.describe()}")
            runners.kill_everybody()
        for _round in range(REST_ROUNDS_MAX):
            # What waits for nobody: the leases of the dead run out.
            if interrupted.wait(LEASE_TTL_S) or self._run_all():
                break
        else:
            self.tally.violate(f"{REST_ROUNDS_MAX} rounds of runs did not bring everything to an end")
        self._clean_all()

    def _run_all(self) -> bool:
        """Whether a run of each job, after all that was blocked is resumed, leaves nothing to do."""
        quiet = True
        for lake in self.arena.lakes():
            world = World(lake)
            try:
                for sequence in world.stores.commits.list_open(None, limit=100):
                    if sequence.state is SequenceState.BLOCKED:
                        self.tally.add("blocked sequences that a person resumed")
                        world.operations().resume(sequence.sequence_id)
                report = world.run()
                published = [d.publication for d in report.datasets if d.publication is not None]
                acknowledge(lake, (str(publication.sequence_id) for publication in published))
                quiet = quiet and not report.failed and not any(p.row_count for p in published)
            except GobblinError as error:
                self.tally.add("failures on the way to rest")
                print(f"{type(error).__name__} on the way to rest: {error}", flush=True)
                quiet = False
            finally:
                world.close()
        return quiet

    def _clean_all(self) -> None:
        """Attempts that never reported are looked at for a day; here that day is over, by their times in the log."""
        with self.arena.victim.connect() as connection:
            connection.execute("""
                UPDATE gobblin.attempt SET started_at = started_at - interval '2 days',
                                           ended_at = ended_at - interval '2 days'
                 WHERE cleaned_at IS NULL
            """)
            datasets = connection.execute("SELECT dataset_id, job FROM gobblin.dataset").fetchall()
        for lake in self.arena.lakes():
            world = World(lake)
            for dataset_id, job in datasets:
                if job == lake.name:
                    operations = world.operations()
                    for _ in range(3):
                        operations.clean(DatasetId(int(str(dataset_id))), root_uri=lake.root, retire_grace_s=0.0)
            world.close()

    # Verdict --------------------------------------------------------------------------------------------

    def _conclude(self, observer: Observer) -> None:
        arena = self.arena
        destinations = [
            Destination(
                root=Path(lake.root),
                job=lake.name,
                sources={s: Counter(lake.source_rows(s.urn)) for s in self._subjects[lake.name]},
                events=Path(lake.directory, "events.log"),
                acknowledged=Path(lake.directory, "acknowledged.log"),
            )
            for lake in arena.lakes()
        ]
        check_history(arena.victim.connect, destinations, observer.remember(), self.tally)
        recovered: set[str] = set()
        for log in arena.logs.glob("*.log"):
            recovered.update("".join(found) for found in _RECOVERED.findall(log.read_text(encoding="utf-8")))
        self.tally.add("sequences finished by another run", len(recovered))
        self.tally.add("rows at the sources", arena.count_source_rows())
        self.tally.add("datasets", sum(len(subjects) for subjects in self._subjects.values()))
        with arena.victim.connect() as connection:
            self._count_sequences(connection)

    def _count_sequences(self, connection: "psycopg.Connection[tuple[object, ...]]") -> None:
        rows = connection.execute("""
            SELECT CASE WHEN state = 'DONE' THEN 'sequences published'
                        WHEN prepared_at IS NOT NULL THEN 'sealed sequences given up'
                        ELSE 'sequences never sealed' END, count(*)
              FROM gobblin.commit_sequence GROUP BY 1
        """).fetchall()
        for name, count in rows:
            self.tally.add(str(name), int(str(count)))
