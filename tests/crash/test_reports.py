"""Commands that are killed while they tell Dagster what they did: it is told at least once, of one run, by the next."""

import os
import subprocess
from collections import Counter
from pathlib import Path

import dagster as dg
import pytest
from sqlalchemy import Engine, text

from gobblin_assets.failpoints import Failpoint
from tests.crash.points import OF_A_REPORT
from tests.support.forked_commands import Commands
from tests.support.reported_commands import reported_sequences

KEY = dg.AssetKey(["mirror", "tree"])
NOTHING_YET = (Failpoint.FINISH_COMMITTED, Failpoint.FINISHED_BEFORE_EVENTS)


@pytest.mark.parametrize("point", [*NOTHING_YET, *OF_A_REPORT], ids=str)
def test_what_a_killed_command_published_is_told(
    tmp_path: Path, commands: Commands, database_url: str, engine: Engine, point: Failpoint
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("a", encoding="utf-8")
    job = "job: mirror\nkind: distcp\nsource: ./in\ndestination: ./out\n"
    (tmp_path / "mirror.yaml").write_text(job, encoding="utf-8")
    (tmp_path / "dagster").mkdir()
    (tmp_path / "dagster/dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    environment = {
        **os.environ,
        "GOBBLIN_HOME": str(tmp_path / "home"),
        "GOBBLIN_DATABASE_URL": database_url,
        "DAGSTER_HOME": str(tmp_path / "dagster"),
    }

    def ask(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return commands.run(*arguments, environment={**environment, **variables}, folder=tmp_path)

    reached = tmp_path / "reached"
    killed = ask(
        *("run", "mirror.yaml", "--dagster=wait"),
        GOBBLIN_FAILPOINT=f"{point}=kill",
        GOBBLIN_FAILPOINT_LOG=str(reached),
    )
    assert killed.returncode == -9, killed.stderr
    assert reached.read_text(encoding="utf-8").strip(), "it never got there"
    with engine.begin() as connection:
        # The lease and the claim of the dead process.
        connection.execute(text("UPDATE gobblin.lease SET expires_at = clock_timestamp() - interval '1 s'"))
        connection.execute(text("UPDATE gobblin.reporter SET claimed_until = clock_timestamp() - interval '1 s'"))

    again = ask("run", "mirror.yaml", "--dagster=wait")
    assert again.returncode == 0, again.stderr
    with engine.connect() as connection:
        query = "SELECT sequence_id FROM gobblin.commit_sequence WHERE step_count > 0"
        sequences = set(map(str, connection.execute(text(query)).scalars()))
        runs = set(map(str, connection.execute(text("SELECT run_id FROM gobblin.run")).scalars()))
    with dg.DagsterInstance.from_config(str(tmp_path / "dagster")) as instance:
        told = Counter(reported_sequences(instance, KEY))
        assert told.keys() == sequences
        assert max(told.values()) <= 2, "once, and once more if the mark was lost"
        assert {each.run_id for each in instance.get_runs()} <= runs, "a run that no command made"
        assert all(each.is_finished for each in instance.get_runs())
