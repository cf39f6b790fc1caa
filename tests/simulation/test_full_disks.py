"""A disk that stays full keeps a publication waiting, and blocks nothing."""

from gobblin_assets.commit.driver import PUBLISH_TRIES_MAX
from gobblin_assets.model.sequence_state import SequenceState
from tests.simulation.history import Checker
from tests.simulation.process import Fault
from tests.simulation.world import SILENT_S_MAX, World, stepped


def test_a_publication_waits_for_room_however_often_it_is_tried() -> None:
    with stepped():
        world, checker = World(), Checker()
        world.add_rows()
        calls = world.copy().open_process()
        calls.run()
        sealed_at = calls.process.calls.index("log.seal")
        world.open_process(faults={sealed_at: Fault.KILLED_AFTER}).run()
        world.disk.capacity_bytes = world.disk.used_bytes()

        for _try in range(2 * PUBLISH_TRIES_MAX):
            world.expire_leases()
            world.db.advance(SILENT_S_MAX)
            world.open_process().recover()

        left = [each for each in world.db.sequences.values() if each.state is not SequenceState.ABORTED]
        sealed = [each for each in left if each.state is not SequenceState.BUILDING]
        assert {(each.state, each.failed_tries) for each in sealed} == {(SequenceState.PREPARED, 0)}
        assert all("ENOSPC" in (each.last_error or "") for each in sealed)
        world.disk.capacity_bytes = None
        world.db.advance(SILENT_S_MAX)
        report = world.open_process().run()
        assert report is not None
        assert not report.failed
        checker.look(world)
