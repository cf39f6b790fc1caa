"""The command line over a bucket: a run is killed, and recovered and verified by hand."""

import pytest

from gobblin_assets.failpoints import Failpoint
from tests.crash.test_kills import KILLED
from tests.support.command_lake import invoke
from tests.support.kinds import OBJECTS
from tests.support.lake import World
from tests.support.shares import rare
from tests.support.table_lake import TABLES, TableLake, start_command


@pytest.mark.parametrize("lake", [rare((TABLES, OBJECTS))], indirect=True, ids="-".join)
def test_a_killed_run_is_recovered_and_verified_by_commands(
    lake: TableLake, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = start_command(lake, f"{Failpoint.STEP_AFTER}=kill")
    assert worker.wait() == KILLED
    world.expire_leases()
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", lake.database_url)
    monkeypatch.setenv("GOBBLIN_HOME", f"{lake.directory}/home")
    job_file = f"{lake.directory}/job.yaml"

    for command in (("commit", "recover"), ("verify", job_file, "--checksums"), ("reconcile", job_file)):
        done = invoke(*command)
        assert done.exit_code == 0, done.output

    assert not world.run().failed
    world.check_exactly_once()
    refused = invoke("compact", job_file, "--dataset", lake.urns[0], "--partition", "")
    assert refused.exit_code != 0
    assert "can't be compacted" in refused.output
