"""Recovery after an outage, on a real log and a real disk: one broken dataset delays none of the others."""

from dataclasses import replace
from pathlib import Path

from sqlalchemy import text

from gobblin_assets import failpoints
from gobblin_assets.commit.markers import marker_directory
from gobblin_assets.commit.recovery import SweepReport
from gobblin_assets.errors import FencedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.urn import DatasetUrn
from tests.support.lake import JOB, Lake, World

URNS = tuple(f"table {number}" for number in range(6))


def leave_open(world: World) -> None:
    """Every dataset's run loses its dataset right after the seal."""

    def lose(point: Failpoint) -> None:
        if point is Failpoint.SEAL_COMMITTED:
            raise FencedError("taken over")

    with failpoints.install(lose):
        assert len(world.run().failed) == len(world.lake.urns)


def recover(world: World) -> SweepReport:
    return world.operations().recover_due(None, on_publication=lambda _publication: None)


def test_datasets_whose_log_can_not_be_checked_are_put_off_and_go_on_later(lake: Lake) -> None:
    world = World(replace(lake, urns=URNS))
    for urn in URNS:
        world.lake.add_rows(urn, 13)
    leave_open(world)
    blockers = []
    for urn in URNS[:2]:
        blockers.append(Path(marker_directory(lake.root, JOB, DatasetUrn(urn))))
        blockers[-1].parent.mkdir(parents=True, exist_ok=True)
        blockers[-1].write_text("in the way")

    first, second = recover(world), recover(world)

    assert (first.published, [failure.sequence.urn for failure in first.failures]) == (4, list(URNS[:2]))
    assert (second.published, second.failures) == (0, ()), "they rest"
    waiting = world.scalar("SELECT count(*) FROM gobblin.commit_sequence WHERE state = 'PREPARED' AND failed_tries = 0")
    assert waiting == 2, "what could not be tried is no failed try"
    for blocker in blockers:
        blocker.unlink()
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE gobblin.commit_sequence SET next_try_at = now() - interval '1 second'"))
    assert recover(world).published == 2
    world.run()
    world.check_exactly_once()
    world.close()
