"""Commands on a job without its file, by the log's records: cleanup, verify, commit."""

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gobblin_assets.model.extract import Mode
from tests.support.command_lake import ask, invoke, make_lake
from tests.support.lake import URNS, Lake, World, start_worker

pytestmark = pytest.mark.turns(of=8)

LOST = URNS[0]


@pytest.fixture
def lake(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    return make_lake(database_url, tmp_path, monkeypatch, "retire_grace_s: 0\n")


@pytest.fixture
def world(lake: Lake) -> Iterator[World]:
    opened = World(lake)
    yield opened
    opened.close()


@pytest.mark.core
def test_cleanup_and_verify_find_a_job_by_its_name_where_the_log_has_it(lake: Lake, world: World) -> None:
    _retire(lake, world)
    world.execute(
        "UPDATE gobblin.segment SET retired_at = retired_at - interval '25 hours' WHERE retired_at IS NOT NULL"
    )
    there = Path(lake.directory, "there")
    Path(lake.root).rename(there)
    assert invoke("destination", "move", "crash", str(there)).exit_code == 0

    verified = ask("verify", "--job", "crash", "--dataset", LOST)
    cleaned = ask("cleanup", "--job", "crash")

    assert [(each["urn"], each["file_count"]) for each in verified] == [(LOST, len(world.published_paths(LOST)))]
    assert {urn: each["removed_file_count"] > 0 for urn, each in cleaned.items()} == dict.fromkeys(URNS, True)
    assert ask("verify", "--job", "crash", "--checksums")
    assert ask("cleanup", "--job", "crash")[LOST]["removed_file_count"] == 0


def test_by_name_alone_retired_files_stay_a_day_whatever_the_file_says(lake: Lake, world: World) -> None:
    _retire(lake, world)

    assert ask("cleanup", "--job", "crash")[LOST]["removed_file_count"] == 0
    assert ask("cleanup", str(Path(lake.directory, "job.yaml")))[LOST]["removed_file_count"] > 0


@pytest.mark.parametrize("act", ["resume", "abandon"])
def test_who_asks_too_much_of_a_sequence_is_told_the_command_that_ends_it(lake: Lake, world: World, act: str) -> None:
    reason = ("--reason", "a test") if act == "abandon" else ()
    start_worker(lake, failpoint="staged_before_seal=kill").wait()
    line = next(each for each in ask("commit", "list", "--all") if each["state"] == "BUILDING")
    world.expire_leases()

    building = invoke("commit", act, line["sequence_id"], *reason)
    cleaned = invoke("cleanup", "--job", line["job"], "--dataset", line["urn"])
    aborted = invoke("commit", act, line["sequence_id"], *reason)
    world.run()
    done = [each for each in ask("commit", "list", "--all") if each["state"] == "DONE"]
    published = invoke("commit", act, done[0]["sequence_id"], *reason)

    assert f"`gobblin-assets cleanup --job {line['job']} --dataset {line['urn']}`" in building.stderr
    assert cleaned.exit_code == 0, cleaned.output
    assert "nothing of it is published" in aborted.stderr
    assert "`gobblin-assets run … --mode refresh`" in published.stderr
    assert [each.exit_code for each in (building, aborted, published)] == [1, 1, 1]
    world.check_exactly_once()


def _retire(lake: Lake, world: World) -> None:
    """Retire all files by a refresh that dies before it cleans."""
    world.run()
    worker = start_worker(lake, failpoint="events_before_cleanup=kill", mode=Mode.REFRESH)
    assert worker.wait() == -signal.SIGKILL
    world.expire_leases()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "JOB_FILE: expected a job"),
        (("--job", "nobody"), "--job: the log has no destination of a job 'nobody'"),
        (
            ("job.yaml", "--job", "another"),
            "JOB_FILE: expected the file of the job 'another', found that of 'crash'",
        ),
        (
            ("--job", "crash", "--dataset", "unknown"),
            "--dataset: the log has no dataset 'unknown' of the job crash",
        ),
    ],
)
@pytest.mark.parametrize("command", ["cleanup", "verify"])
def test_a_job_that_is_not_found_is_refused_with_the_way_out(
    lake: Lake, world: World, command: str, arguments: tuple[str, ...], said: str
) -> None:
    world.run()
    given = [str(Path(lake.directory, each)) if each == "job.yaml" else each for each in arguments]
    refused = invoke(command, *given)
    assert refused.exit_code == 2
    assert said in refused.output


@pytest.mark.parametrize("command", ["recover", "resume", "abandon"])
def test_without_the_job_s_file_a_sequence_is_held_as_long_at_a_time_as_by_its_own_run(
    lake: Lake, world: World, command: str
) -> None:
    start_worker(replace(lake, lease_ttl_s=1_000.0), failpoint="seal_committed=kill").wait()
    (line,) = [each for each in ask("commit", "list") if each["state"] == "PREPARED"]
    world.expire_leases()
    if command == "resume":
        world.execute("UPDATE gobblin.commit_sequence SET state = 'BLOCKED' WHERE state = 'PREPARED'")
    # The length of a lease shows only while the lease is held.
    world.execute(
        "CREATE FUNCTION gobblin.keep_ttl() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO gobblin.taken SELECT extract(epoch FROM NEW.expires_at - clock_timestamp())"
        " WHERE NEW.fence > OLD.fence; RETURN NEW; END $$"
    )
    world.execute("CREATE TABLE gobblin.taken (ttl_s double precision)")
    world.execute(
        "CREATE TRIGGER keep_ttl AFTER UPDATE ON gobblin.lease FOR EACH ROW EXECUTE FUNCTION gobblin.keep_ttl()"
    )

    options = {
        "recover": (),
        "resume": (line["sequence_id"],),
        "abandon": (line["sequence_id"], "--reason", "a test"),
    }
    result = invoke("commit", command, *options[command])

    assert result.exit_code == 0, result.output
    assert round(float(str(world.scalar("SELECT max(ttl_s) FROM gobblin.taken")))) == 1_000
