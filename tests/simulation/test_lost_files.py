"""A file that a write loses is noticed before the seal, in the simulated world."""

from gobblin_assets.model.sequence_state import SequenceState
from tests.simulation.history import Checker
from tests.simulation.storage_changes import loses_a_file
from tests.simulation.world import URNS, World, stepped


def test_nothing_is_sealed_of_writes_that_lose_a_file_and_the_next_run_reads_all() -> None:
    world = World()
    world.add_rows()
    with stepped(), loses_a_file():
        report = world.open_process().run()
    assert report is not None
    assert sorted(each.urn for each in report.failed) == sorted(URNS)
    assert {each.error_family for each in report.failed} == {"RetryableError"}
    assert all("2 rows were read, and the files that were written hold 1" in str(each.error) for each in report.failed)
    assert not world.events
    assert {row.state for row in world.db.sequences.values()} == {SequenceState.ABORTED}

    with stepped():
        world.expire_leases()
        world.open_process().run()
        Checker().check_rest(world)


def test_a_file_that_is_lost_once_is_written_by_the_next_try() -> None:
    world = World()
    world.add_rows()
    runner = world.open_process()
    with stepped(), loses_a_file(times=1):
        report = runner.run()
    assert report is not None
    assert not report.failed
    assert any("try 1 failed" in line for line in runner.lines)
    Checker().look(world)
