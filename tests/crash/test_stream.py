"""A stream: many publications of one run, with failures between, within and after them."""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from gobblin_assets.errors import OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.failpoints import Failpoint, install
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.state import DatasetOutcome, WorkingState
from gobblin_assets.run.job_kind import PlanRequest, SessionLostError, UnitPlan
from gobblin_assets.run.run_values import RunReport
from tests.crash.points import OF_A_PUBLICATION, OF_CLEANUP
from tests.support.lake import Lake, World, start_worker
from tests.support.numbered_rows import NumberedRows
from tests.support.spark import wait_until
from tests.torture.server import Victim

pytestmark = pytest.mark.turns(of=4)

KILLED = -signal.SIGKILL
LOOKS_MAX = 2_000
# A minute of them, since a busy machine starts a process in seconds.
ROUNDS_MAX = 1_200

# Points of the second publication, after the first one. Each is reached first for one dataset, or one attempt.
KILLS = (*OF_A_PUBLICATION, Failpoint.FINISHED_BEFORE_EVENTS, Failpoint.EVENTS_BEFORE_CLEANUP, *OF_CLEANUP)


class Looks:
    """``wait_for_stop`` of a stream: calls one act after the other, each once the one before shows, then stops it."""

    def __init__(self, *acts: Callable[[], Callable[[], bool] | None]) -> None:
        self._acts = list(acts)
        self._is_done: Callable[[], bool] = lambda: True
        self._left = LOOKS_MAX

    def __call__(self, seconds: float) -> bool:
        # Short enough to be quick, and long enough that the rest after a failure is over.
        threading.Event().wait(min(seconds, 0.01))
        self._left -= 1
        assert self._left > 0, "the stream did not get on"
        if not self._is_done():
            return False
        if not self._acts:
            return True
        self._is_done = self._acts.pop(0)() or (lambda: True)
        return False


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> Lake:
    return Lake(database_url, str(tmp_path))


@pytest.fixture
def world(lake: Lake) -> Iterator[World]:
    opened = World(lake)
    yield opened
    opened.close()


def add_and_wait(world: World, urn: str, count: int) -> Callable[[], Callable[[], bool]]:
    """Write rows at the source; done when the dataset's watermark is at their end."""

    def act() -> Callable[[], bool]:
        world.lake.add_rows(urn, count)
        rows = len(world.lake.source_rows(urn))
        return lambda: world.watermark(urn) == rows

    return act


def count_sequences(world: World, urn: str, state: str = "DONE") -> object:
    return world.scalar(
        "SELECT count(*) FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)"
        " WHERE d.urn = :urn AND s.state = :state",
        urn=urn,
        state=state,
    )


def hold(world: World, urn: str) -> None:
    """Let another process hold the dataset for an hour."""
    query = """
        UPDATE gobblin.lease SET owner = 'somebody', expires_at = clock_timestamp() + interval '1 hour'
         WHERE lane_id = (SELECT dataset_id FROM gobblin.dataset WHERE urn = :urn)
    """
    with world.engine.begin() as connection:
        connection.execute(text(query), {"urn": urn})


def outcomes(report: RunReport) -> dict[str, DatasetOutcome]:
    return {each.urn: each.outcome for each in report.datasets}


def fail_once(point: Failpoint, error: Exception) -> Callable[[Failpoint], None]:
    left = [error]

    def hook(reached: Failpoint) -> None:
        if reached is point and left:
            raise left.pop()

    return hook


def test_what_comes_is_published_in_one_sequence_after_the_other_of_one_run(lake: Lake, world: World) -> None:
    first, second = lake.urns
    lake.add_rows(first, 5)

    report = world.stream(Looks(add_and_wait(world, first, 7), add_and_wait(world, second, 4)))

    assert report.state is WorkingState.COMMITTED
    assert outcomes(report) == {first: DatasetOutcome.COMMITTED, second: DatasetOutcome.COMMITTED}
    world.check_exactly_once()
    # The first sequence of the second dataset keeps its position, although it had nothing to read.
    assert (count_sequences(world, first), count_sequences(world, second)) == (2, 2)
    assert world.scalar("SELECT count(*) FROM gobblin.run") == 1
    assert world.scalar("SELECT count(*) FROM gobblin.lease WHERE owner IS NOT NULL") == 0
    assert len(world.events) == 4
    assert Counter(world.events) == Counter(set(world.events))


def test_looks_without_news_write_nothing(lake: Lake, world: World) -> None:
    lake.add_rows(lake.urns[0], 5)

    world.stream(Looks(*[lambda: None] * 20))

    assert [count_sequences(world, urn) for urn in lake.urns] == [1, 1]


@pytest.mark.rotating
@pytest.mark.parametrize("point", KILLS, ids=str)
def test_a_stream_killed_anywhere_is_gone_on_with_by_the_next(lake: Lake, world: World, point: Failpoint) -> None:
    for urn in lake.urns:
        lake.add_rows(urn, 7)
    # In the first publication each point is reached two to four times.
    worker = start_worker(lake, action="stream", failpoint=f"{point}=kill@5")
    for round_number in range(ROUNDS_MAX):
        if worker.process.exitcode is not None:
            break
        for urn in lake.urns:
            lake.add_rows(urn, 2 + round_number % 3)
        worker.process.join(0.05)

    assert worker.wait() == KILLED
    world.expire_leases()
    report = world.stream(Looks(add_and_wait(world, lake.urns[1], 1), add_and_wait(world, lake.urns[0], 2)))
    assert not report.failed
    world.check_exactly_once()


def test_sigterm_ends_at_a_published_boundary(lake: Lake, world: World) -> None:
    worker = start_worker(lake, action="stream")
    lake.add_rows(lake.urns[0], 50)
    wait_until(lambda: (world.watermark(lake.urns[0]) or 0) > 0, "a publication of the stream")
    for _ in range(20):
        lake.add_rows(lake.urns[1], 5)

    worker.terminate()

    assert worker.wait() == 0
    assert world.scalar("SELECT count(*) FROM gobblin.commit_sequence WHERE state <> 'DONE'") == 0
    assert world.scalar("SELECT state FROM gobblin.run") == "COMMITTED"
    for urn in lake.urns:
        rows = lake.source_rows(urn)[: world.watermark(urn)]
        assert world.published_rows(urn) == Counter(rows)
    assert not world.run().failed
    world.check_exactly_once()


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("point", "error"),
    [
        (Failpoint.SEQUENCE_BEGUN, RetryableError("the network is gone")),
        (Failpoint.STAGED_BEFORE_SEAL, RetryableError("the network is gone")),
        (Failpoint.SEAL_COMMITTED, OutcomeUnknownError("the connection broke at COMMIT")),
        (Failpoint.SEALED_BEFORE_EXECUTE, RetryableError("the network is gone")),
        (Failpoint.STEP_AFTER, RetryableError("the disk was full for a moment")),
        (Failpoint.FINISH_COMMITTED, OutcomeUnknownError("the connection broke at COMMIT")),
        (Failpoint.FINISHED_BEFORE_EVENTS, RetryableError("Dagster's storage does not answer")),
    ],
    ids=str,
)
def test_what_time_mends_is_recovered_and_gone_on_with(
    lake: Lake, world: World, point: Failpoint, error: Exception
) -> None:
    for urn in lake.urns:
        lake.add_rows(urn, 7)

    with install(fail_once(point, error)):
        report = world.stream(
            Looks(*(add_and_wait(world, urn, count) for count in (3, 4) for urn in lake.urns)),
        )

    assert not report.failed
    world.check_exactly_once()
    assert len(set(world.events)) == world.scalar("SELECT count(*) FROM gobblin.commit_sequence WHERE state = 'DONE'")
    assert world.scalar("SELECT count(*) FROM gobblin.commit_sequence WHERE announced_at IS NULL AND state='DONE'") == 0


@pytest.mark.rotating
@pytest.mark.parametrize("point", [Failpoint.SEAL_COMMITTED, Failpoint.STEP_AFTER, Failpoint.FINISH_COMMITTED], ids=str)
def test_a_publication_that_was_completed_later_is_no_failure_of_the_stream(
    lake: Lake, world: World, point: Failpoint
) -> None:
    for urn in lake.urns:
        lake.add_rows(urn, 7)
    announced = "SELECT count(*) FROM gobblin.commit_sequence WHERE announced_at IS NOT NULL"

    with install(fail_once(point, OutcomeUnknownError("the connection broke at COMMIT"))):
        report = world.stream(Looks(lambda: lambda: world.scalar(announced) == len(lake.urns)))

    assert outcomes(report) == dict.fromkeys(lake.urns, DatasetOutcome.COMMITTED)
    assert not report.recovered
    assert world.lines[-1] == "stopped at a published boundary; 14 rows in 2 publications in all"
    world.check_exactly_once()


def test_what_passed_with_an_earlier_window_is_no_failure_of_the_stream(
    lake: Lake, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure at the end of one window, whose work succeeded in the next window."""
    for urn in lake.urns:
        lake.add_rows(urn, 7)
    windows = [AssetPartition("today")]
    monkeypatch.setattr(NumberedRows, "current_partition", lambda _kind, _urn, _now: windows[-1])

    def begin_next(reached: Failpoint) -> None:
        if reached is Failpoint.STAGED_BEFORE_SEAL and len(windows) == 1:
            windows.append(AssetPartition("tomorrow"))
            raise RetryableError("the network is gone")

    published = "SELECT count(*) FROM gobblin.commit_sequence WHERE state = 'DONE' AND partition = 'tomorrow'"
    with install(begin_next):
        report = world.stream(Looks(lambda: lambda: world.scalar(published) == len(lake.urns)))

    assert len(windows) == 2
    assert not report.failed
    assert report.state is WorkingState.COMMITTED
    assert {each.urn for each in report.datasets} == set(lake.urns)


def test_a_dataset_that_only_a_person_can_mend_leaves_and_the_others_go_on(lake: Lake, world: World) -> None:
    refused, other = sorted(lake.urns)
    for urn in lake.urns:
        lake.add_rows(urn, 7)

    with install(fail_once(Failpoint.STAGED_BEFORE_SEAL, RejectedError("a column was dropped", field="columns"))):
        report = world.stream(Looks(add_and_wait(world, other, 3), add_and_wait(world, other, 3)))

    assert outcomes(report) == {refused: DatasetOutcome.FAILED, other: DatasetOutcome.COMMITTED}
    assert report.state is WorkingState.FAILED
    assert world.watermark(refused) is None
    assert [line for line in world.lines if line.startswith(f"{refused} leaves the stream")]
    assert not world.run().failed
    world.check_exactly_once()


def test_a_stream_that_all_datasets_have_left_ends(lake: Lake, world: World) -> None:
    def refuse(reached: Failpoint) -> None:
        if reached is Failpoint.STAGED_BEFORE_SEAL:
            raise RejectedError("a column was dropped", field="columns")

    with install(refuse):
        report = world.stream(Looks(*[lambda: None] * LOOKS_MAX))

    assert {each.urn for each in report.failed} == set(lake.urns)


def test_a_busy_dataset_is_taken_when_it_is_free(lake: Lake, world: World) -> None:
    first, second = lake.urns
    world.run()
    lake.add_rows(second, 3)
    hold(world, second)

    busy = world.stream(Looks(add_and_wait(world, first, 3)))
    freed = world.stream(Looks(add_and_wait(world, first, 3), world.expire_leases, add_and_wait(world, second, 3)))

    assert outcomes(busy) == {first: DatasetOutcome.COMMITTED, second: DatasetOutcome.SKIPPED}
    assert [each.urn for each in busy.failed] == [second], "it was asked for both"
    assert outcomes(freed) == {first: DatasetOutcome.COMMITTED, second: DatasetOutcome.COMMITTED}
    world.check_exactly_once()


def test_a_stream_whose_lease_is_taken_waits_for_its_turn(lake: Lake, world: World) -> None:
    def steal() -> None:
        world.expire_leases()
        other = World(lake)
        assert not other.run().failed
        other.close()

    for urn in lake.urns:
        lake.add_rows(urn, 7)

    report = world.stream(Looks(steal, *(add_and_wait(world, urn, 3) for urn in lake.urns)))

    assert not report.failed
    world.check_exactly_once()


def test_a_stream_whose_spark_is_gone_ends_with_a_line_and_the_next_goes_on(
    lake: Lake, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.add_rows(lake.urns[0], 7)

    def lose(_kind: NumberedRows, _request: PlanRequest) -> UnitPlan:
        raise SessionLostError("Spark failed: nobody listens")

    with monkeypatch.context() as patch:
        patch.setattr(NumberedRows, "plan", lose)
        with pytest.raises(SessionLostError, match="Spark failed: nobody listens"):
            world.stream(Looks())

    assert world.scalar("SELECT state FROM gobblin.run") == "FAILED"
    world.expire_leases()
    assert not world.run().failed
    world.check_exactly_once()


def test_a_stream_says_what_it_follows_that_nothing_comes_and_what_it_published(lake: Lake, world: World) -> None:
    lake.add_rows(lake.urns[0], 7)

    world.stream(Looks(*[lambda: None] * 5))

    follows, waits, stopped = (
        line for line in world.lines if "following" in line or "nothing new" in line or "stop" in line
    )
    assert follows.startswith("following 2 datasets of crash; what comes is published every 0.01 s")
    assert waits == "nothing new; waiting for records"
    assert stopped == "stopped at a published boundary; 7 rows in 2 publications in all"


def test_a_stream_outlives_a_postgres_that_is_killed(home: Path, tmp_path: Path) -> None:
    victim = Victim(home, "stream")
    lake = Lake(victim.url, str(tmp_path), lease_ttl_s=2.0)
    world = World(lake)
    worker = start_worker(lake, action="stream")

    def await_all() -> None:
        rows = {urn: len(lake.source_rows(urn)) for urn in lake.urns}
        wait_until(lambda: {urn: world.watermark(urn) for urn in rows} == rows, f"watermarks at {rows}")

    for down_s in (0.0, 2.0):
        for urn in lake.urns:
            lake.add_rows(urn, 20)
        await_all()
        for urn in lake.urns:
            lake.add_rows(urn, 50)
        victim.kill(signal.SIGKILL, down_s)
    await_all()
    worker.terminate()

    assert worker.wait() == 0
    world.check_exactly_once()
    world.close()
