"""A process that takes or cleans a dataset ends what the dataset's dead owners left in the log."""

import signal
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gobblin_assets.commit.postgres import PostgresCommitStepStore
from gobblin_assets.errors import RetryableError
from gobblin_assets.failpoints import Failpoint, install
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.state.leases import Lease
from gobblin_assets.state.postgres import PostgresLeaseStore
from tests.crash.test_stream import Looks, add_and_wait, fail_once
from tests.support.lake import Lake, World, start_worker

KILLED = -signal.SIGKILL


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> Lake:
    return Lake(database_url, str(tmp_path))


@pytest.fixture
def world(lake: Lake) -> Iterator[World]:
    opened = World(lake)
    yield opened
    opened.close()


class _NoAbort(PostgresCommitStepStore):
    """The log is out of reach while a sequence is to be abandoned."""

    def abort(self, sequence_id: SequenceId, *, fence: int, error: str | None) -> None:
        if error is not None and "the network is gone" in error:
            raise RetryableError("the network is gone")
        super().abort(sequence_id, fence=fence, error=error)


class _NoRelease(PostgresLeaseStore):
    """The log is also out of reach while the lease is to be released, so that the next try still has the lease."""

    failures = 1

    def release(self, leases: Iterable[Lease]) -> None:
        if self.failures:
            self.failures -= 1
            raise RetryableError("the network is gone")
        super().release(leases)


def test_what_could_not_be_given_up_while_the_log_was_away_is_ended_by_the_same_stream(
    lake: Lake, world: World
) -> None:
    lake.add_rows(lake.urns[0], 7)
    leases = _NoRelease(world.engine)
    world.stores = replace(world.stores, commits=_NoAbort(world.engine), leases=leases)

    with install(fail_once(Failpoint.STAGED_BEFORE_SEAL, RetryableError("the network is gone"))):
        report = world.stream(Looks(add_and_wait(world, lake.urns[0], 3)))

    assert leases.failures == 0
    assert not report.failed
    world.check_exactly_once()
    assert world.scalar("SELECT count(*) FROM gobblin.commit_sequence WHERE state = 'BUILDING'") == 0
    assert world.scalar("SELECT count(*) FROM gobblin.attempt WHERE state = 'RUNNING'") == 0


@pytest.mark.parametrize("point", [Failpoint.ATTEMPT_REGISTERED, Failpoint.ATTEMPT_WRITTEN], ids=str)
def test_a_cleanup_ends_what_a_dead_stream_was_building(lake: Lake, world: World, point: Failpoint) -> None:
    lake.add_rows(lake.urns[0], 7)
    assert start_worker(lake, action="stream", failpoint=f"{point}=kill").wait() == KILLED
    world.expire_leases()
    assert world.scalar("SELECT count(*) FROM gobblin.attempt WHERE state = 'RUNNING'") != 0
    known = world.stores.datasets.load(JobName(lake.job().job), [DatasetUrn(urn) for urn in lake.urns])

    for state in known.values():
        world.operations().clean(state, root_uri=lake.root, retire_grace_s=0)

    assert world.scalar("SELECT count(*) FROM gobblin.commit_sequence WHERE state = 'BUILDING'") == 0
    assert world.scalar("SELECT count(*) FROM gobblin.attempt WHERE state = 'RUNNING'") == 0
    assert not world.run().failed
    world.check_exactly_once()
