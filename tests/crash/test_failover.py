"""Postgres fails over in the middle of a run, to a standby that is up to date or lacks the last transactions.

The primary is killed, and the standby is promoted under the same address. One failover serves all of these runs.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_assets.commit.attempts import STAGING_NAME
from gobblin_assets.commit.reconciliation import Way
from gobblin_assets.model.state import DatasetOutcome
from tests.support.failover import (
    BEFORE_THE_RUN,
    COMMIT_OF_THE_SEAL,
    Moment,
    Survivor,
    fail_over_under,
    open_pair,
)
from tests.support.lake import Lake, World
from tests.support.postgres import make_reachable_directory
from tests.support.restoring import reconcile

pytestmark = pytest.mark.turns(of=4)

URN = "orders"
ROWS, NEW_ROWS = 13, 7
STAGED, SEALED, STEPS_DONE = "staged_before_seal", "sealed_before_execute", "verified_before_finish"

NOTHING_IS_LOST = (
    Moment(COMMIT_OF_THE_SEAL, COMMIT_OF_THE_SEAL),
    Moment("seal_committed", "seal_committed", is_lost=True),
    Moment(SEALED, SEALED),
    Moment("step_after", "step_after"),
    Moment(STEPS_DONE, STEPS_DONE),
    Moment("finish_committed", "finish_committed", is_lost=True),
)
DONE_AGAIN_BY_THE_RUN = (
    Moment(STAGED, COMMIT_OF_THE_SEAL),
    Moment(STAGED, "seal_committed", is_lost=True),
    Moment(SEALED, STEPS_DONE),
    Moment(STEPS_DONE, "finish_committed", is_lost=True),
)
# Nothing of them is visible, or the new primary knows how to continue them.
REPAIRED_BY_THE_NEXT_RUN = (
    Moment(BEFORE_THE_RUN, "lease_taken"),
    Moment(BEFORE_THE_RUN, COMMIT_OF_THE_SEAL),
    Moment("sequence_begun", COMMIT_OF_THE_SEAL),
    Moment("sequence_begun", SEALED),
    Moment(STAGED, "seal_committed"),
    Moment(STAGED, SEALED),
    Moment(STEPS_DONE, "finish_committed"),
)
# There is a marker or a file, and the new primary does not know of the seal. Each case is repaired in one way.
STOPPED = (
    (Moment(BEFORE_THE_RUN, STEPS_DONE), Way.ADOPT),
    (Moment("sequence_begun", "step_after"), Way.ADOPT),
    (Moment("sequence_begun", STEPS_DONE), Way.SET_ASIDE),
    (Moment(STAGED, "marker_written"), Way.ADOPT),
    (Moment(STAGED, "step_after"), Way.SET_ASIDE),
    (Moment(STAGED, STEPS_DONE), Way.ADOPT),
    (Moment(STAGED, STEPS_DONE), Way.SET_ASIDE),
    (Moment(STAGED, "finish_committed"), Way.SET_ASIDE),
    (Moment(STAGED, "finish_committed", is_lost=True), Way.ADOPT),
)

Survivors = dict[tuple[Moment, Way | None], Survivor]


@pytest.fixture(scope="module")
def survivors() -> Iterator[Survivors]:
    alone = [(moment, None) for moment in (*NOTHING_IS_LOST, *DONE_AGAIN_BY_THE_RUN, *REPAIRED_BY_THE_NEXT_RUN)]
    every = [*alone, *STOPPED]
    directory = make_reachable_directory("gobblin-failover-")
    with open_pair(directory) as pair:
        runs = []
        for number, (moment, _way) in enumerate(every):
            home = directory / f"lake-{number}"
            lake = Lake(pair.create_database(f"log_{number}"), str(home), (URN,), lease_ttl_s=600.0)
            Path(lake.root).mkdir(parents=True)
            publish(lake, ROWS)
            lake.add_rows(URN, NEW_ROWS)
            runs.append((moment, lake))
        yield dict(zip(every, fail_over_under(pair, runs), strict=True))
    shutil.rmtree(directory)


def publish(lake: Lake, count: int) -> None:
    lake.add_rows(URN, count)
    world = World(lake)
    assert not world.run().failed
    world.close()


@pytest.fixture
def world(survivors: Survivors, moment: Moment, way: Way | None) -> Iterator[World]:
    opened = World(survivors[moment, way].lake)
    yield opened
    opened.close()


@pytest.fixture
def way() -> None:
    """None: no person has to decide."""


def check_exactly_once(world: World) -> None:
    """Ignores hidden staging: no log names the attempts of the lost history any more; a person may delete them."""
    rows = world.lake.source_rows(URN)
    assert world.published_rows(URN) == Counter(rows)
    assert world.watermark(URN) == len(rows)
    known = set(world.published_paths(URN))
    unknown = [path for path in world.stored_files() if path not in known and STAGING_NAME not in Path(path).parts]
    assert unknown == [], "a reader of the directory sees files that the log doesn't know"
    assert known <= set(world.stored_files())


@pytest.mark.rotating
@pytest.mark.parametrize("moment", NOTHING_IS_LOST, ids=str)
def test_a_failover_that_loses_nothing_is_survived_by_the_run_itself(
    survivors: Survivors, world: World, moment: Moment
) -> None:
    assert survivors[moment, None].outcome().outcome == DatasetOutcome.COMMITTED
    world.check_exactly_once()

    publish(world.lake, 3)

    world.check_exactly_once()


@pytest.mark.rotating
@pytest.mark.parametrize("moment", DONE_AGAIN_BY_THE_RUN, ids=str)
def test_a_transaction_that_only_the_dead_primary_had_is_done_again(
    survivors: Survivors, world: World, moment: Moment
) -> None:
    assert survivors[moment, None].outcome().outcome == DatasetOutcome.COMMITTED
    world.check_exactly_once()

    publish(world.lake, 3)

    world.check_exactly_once()


@pytest.mark.rotating
@pytest.mark.parametrize("moment", REPAIRED_BY_THE_NEXT_RUN, ids=str)
def test_where_nothing_unknown_is_visible_the_next_run_repairs_by_itself(
    survivors: Survivors, world: World, moment: Moment
) -> None:
    ended = survivors[moment, None].outcome()
    assert ended.outcome != DatasetOutcome.COMMITTED, "the new primary does not know of it"
    assert ended.error_family == "ConflictError"
    assert world.watermark(URN) == ROWS, "the new primary does not know of the new rows"
    world.expire_leases()

    publish(world.lake, 3)

    check_exactly_once(world)


@pytest.mark.parametrize(("moment", "way"), STOPPED, ids=str)
def test_files_that_the_new_primary_does_not_know_stop_the_dataset_until_a_person_reconciles(
    survivors: Survivors, world: World, moment: Moment, way: Way
) -> None:
    ended = survivors[moment, way].outcome()
    assert ended.error_family == "ConflictError"
    assert ended.error is not None
    assert "failed over to a standby that lagged" in ended.error
    before = world.stored_files()
    world.expire_leases()

    (stopped,) = world.run().datasets

    assert stopped.outcome is DatasetOutcome.BLOCKED
    assert stopped.error is not None
    assert "gobblin-assets reconcile" in stopped.error
    assert world.stored_files() == before
    assert world.watermark(URN) == ROWS

    reconcile(world, URN, way)
    if way is Way.ADOPT:
        assert world.watermark(URN) == ROWS + NEW_ROWS, "what was published is known again, and not read again"
    publish(world.lake, 3)

    check_exactly_once(world)
