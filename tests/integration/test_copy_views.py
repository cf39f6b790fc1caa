"""What commands show of copies: plan, status, ledger, verify, and what a run says."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_lake import ask, invoke
from tests.support.copy_folder import Folder, make_folder

pytestmark = pytest.mark.turns(of=4)


@pytest.fixture
def folder(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    return make_folder(database_url, tmp_path, monkeypatch)


def test_the_ledger_lists_what_names_hold_now_and_tells_earlier_versions_apart(folder: Folder) -> None:
    folder.run()
    folder.change()
    folder.run()
    folder.write("a.txt", "the third", at_s=3_000)
    folder.run()

    def listed(*options: str) -> list[tuple[str, int, str | None]]:
        found = ask("ledger", "--files", *options)["files"]
        return sorted((Path(each["path"]).name, each["bytes"], each["became"]) for each in found)

    assert listed() == [("a.txt", 9, None), ("c.txt", 3, None)]
    earlier = [("a.txt", 3, "replaced"), ("a.txt", 6, "replaced"), ("b.txt", 3, "removed")]
    assert listed("--all") == sorted([*listed(), *earlier], key=str)
    assert "replaced" in invoke("ledger", "--files", "--all").output


def kill_run(folder: Folder) -> str:
    """A run that dies after the seal; the id of its sequence."""
    command = [sys.executable, "-m", "gobblin_assets.cli", "run", folder.job, "--no-dagster"]
    environment = {**os.environ, "GOBBLIN_FAILPOINT": "seal_committed=kill"}
    died = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL
    (line,) = ask("commit", "list")
    return str(line["sequence_id"])


def test_what_a_dead_run_left_is_said_by_a_plan_and_by_those_that_wait_for_its_lease(folder: Folder) -> None:
    Path(folder.job).write_text(Path(folder.job).read_text() + "lease: {wait_s: 2}\n")
    sequence = kill_run(folder)

    planned = invoke("plan", folder.job)
    run = invoke("run", folder.job, "--no-dagster")
    last = ask("history", "--limit", "1")[0]
    recovered = invoke("commit", "recover")
    resumed = invoke("commit", "resume", sequence)

    first = f"sequence {sequence} of docs is PREPARED: the next run completes it first (`gobblin-assets commit show"
    assert planned.stderr.startswith(first), planned.stderr
    assert "waiting for at most 2 s" in run.stderr
    assert "whose lease ends in " in run.stderr
    assert run.stderr.index("waiting for") < run.stderr.index("; skipped. Run it again after that.")
    assert run.stdout.lstrip().splitlines()[0].rstrip().endswith(": SKIPPED"), "nothing was committed"
    assert run.exit_code == 3
    (left_out,) = ask("history", last["run_id"])["datasets"]
    assert (last["state"], left_out["outcome"]) == ("FAILED", "SKIPPED")
    assert "docs is being worked on by " in left_out["error"]
    assert f"sequence {sequence} of docs is PREPARED, and held by " in recovered.stderr
    assert "busy: 1" in recovered.stderr
    assert "docs is being worked on by " in resumed.output


def test_a_plan_says_which_publication_a_person_must_decide_about(folder: Folder) -> None:
    Path(folder.job).write_text(Path(folder.job).read_text() + "lease: {ttl_s: 1}\n")
    folder.run()
    folder.change()
    sequence = kill_run(folder)
    folder.at("a.txt").write_text("a stranger's")
    assert invoke("run", folder.job, "--no-dagster").exit_code == 1

    planned = invoke("plan", folder.job)

    assert planned.stderr.startswith(f"sequence {sequence} of docs is BLOCKED, and no run publishes docs before that: ")
    assert f"`gobblin-assets commit resume {sequence}`" in planned.stderr


def test_a_plan_of_found_file_sets_names_each_and_directories_above_them_once(folder: Folder) -> None:
    Path(folder.job).write_text(
        "job: mirror\nkind: distcp\nsource: ./in\ndestination: ./out\n"
        "finder: {kind: stream, pattern: '*/%Y/%m'}\ndefaults: {partitions: {kind: monthly, start: 2024-01-01}}\n"
    )
    folder.write("2024/05/a.txt", "first", at_s=1_000)
    folder.write("2024/06/a.txt", "second", at_s=1_000)

    lines = [line.split() for line in invoke("plan", folder.job).stdout.splitlines()]

    changes = [(each[1], each[3]) for each in lines if each[:1] == ["docs"]]
    assert changes == [
        ("2024-05-01", "."),
        ("2024-05-01", "2024"),
        ("2024-05-01", "2024/05"),
        ("2024-05-01", "2024/05/a.txt"),
        ("2024-06-01", "2024/06"),
        ("2024-06-01", "2024/06/a.txt"),
    ]
