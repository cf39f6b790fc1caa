"""Copies by the command line: plan, run, verify, trash, cleanup, reconcile, and commands that copies don't have."""

import datetime as dt
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest

from gobblin_assets.db.embedded import EmbeddedServer
from tests.support import postgres
from tests.support.command_lake import ask, invoke
from tests.support.copy_folder import COPY_JOB, Folder, make_folder
from tests.support.database_pool import DatabasePool

pytestmark = pytest.mark.turns(of=8)


@pytest.fixture
def another_log(server: EmbeddedServer, database_pool: DatabasePool) -> Iterator[str]:
    with postgres.migrated_database(server, database_pool) as name:
        yield server.url(name)


@pytest.fixture
def folder(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    return make_folder(database_url, tmp_path, monkeypatch)


def test_a_plan_says_of_each_path_what_becomes_of_it_and_why(folder: Folder) -> None:
    folder.run()
    folder.change()

    (planned,) = ask("plan", folder.job)

    assert [(each["path"], each["action"], each["why"]) for each in planned["changes"]] == [
        ("a.txt", "replace", "length 3 became 6"),
        ("sub", "create", "is new"),
        ("sub/c.txt", "create", "is new"),
        ("b.txt", "remove", "the source lacks it"),
    ]
    assert folder.at("b.txt").exists(), "a plan changes nothing"


@pytest.mark.core
def test_a_run_makes_both_trees_equal_and_tells_what_it_did(folder: Folder) -> None:
    folder.run()
    folder.change()

    report = ask("run", folder.job)

    (dataset,) = report["datasets"]
    assert (dataset["outcome"], dataset["publication"]["file_count"]) == ("COMMITTED", 2)
    assert folder.at("a.txt").read_text() == "longer"
    assert folder.at("a.txt").stat().st_mtime == 2_000
    assert folder.at("sub/c.txt").read_text() == "new"
    assert not folder.at("b.txt").exists()


def test_tables_of_copies_tell_of_files_and_not_of_rows(folder: Folder) -> None:
    first = invoke("run", folder.job)
    folder.change()
    planned = invoke("plan", folder.job)
    assert planned.output.lstrip().startswith("changes")
    folder.run()
    assert "nothing differs" in invoke("plan", folder.job).output
    for said in (first.output, planned.output):
        assert "rows" not in said
        assert "watermark" not in said
    (found,) = ask("status")
    assert found["rows"] is None
    assert (found["files"], found["file_bytes"]) == (2, 9), "what was replaced is not counted twice"
    assert invoke("status").exit_code == 0


@pytest.mark.core
def test_verify_knows_what_each_name_holds_now(folder: Folder) -> None:
    folder.run()
    folder.change()
    folder.run()
    (verified,) = ask("verify", folder.job)
    assert (verified["file_count"], verified["faults"]) == (2, [])

    folder.at("a.txt").write_text("stranger")
    folder.at("sub/c.txt").unlink()
    found = invoke("verify", folder.job, "--json")

    assert found.exit_code == 1
    assert '"other length"' in found.stdout
    assert '"missing"' in found.stdout


@pytest.mark.core
def test_replaced_and_removed_files_come_back_from_the_trash(folder: Folder, tmp_path: Path) -> None:
    folder.run()
    folder.change()
    folder.run()

    kept = ask("trash", "list", folder.job)
    assert {(Path(each["path"]).name, each["was_removed"]) for each in kept} == {("a.txt", False), ("b.txt", True)}
    for each in kept:
        kept_s = dt.datetime.fromisoformat(each["kept_until"]) - dt.datetime.fromisoformat(each["done_at"])
        assert kept_s.total_seconds() == 7 * 86_400
    assert "kept until" in invoke("trash", "list", folder.job).output
    back = tmp_path / "back.txt"
    arguments = ("--dataset", "docs", "--path", str(folder.at("b.txt")), "--to", str(back))
    assert invoke("trash", "restore", folder.job, *arguments).exit_code == 0
    assert back.read_text() == "two"
    assert invoke("trash", "restore", folder.job, *arguments).exit_code == 1, "the file is there already"
    unknown = ("--dataset", "docs", "--path", str(folder.at("c.txt")), "--to", str(tmp_path / "none"))
    refused = invoke("trash", "restore", folder.job, *unknown)
    assert (refused.exit_code, (tmp_path / "none").exists()) == (2, False)
    assert f"such as {folder.at('')}" in refused.output, "the error says how paths look"


@pytest.mark.parametrize("path", ["b.txt", "docs/b.txt"])
def test_a_version_comes_back_with_its_attributes_by_the_name_that_a_plan_shows(folder: Folder, path: str) -> None:
    origin = folder.path / "in/docs/b.txt"
    origin.chmod(0o640)
    folder.run()
    folder.change()
    folder.run()
    back = folder.path / "back.txt"

    arguments = ("--dataset", "docs", "--path", path, "--to", str(back))
    for job in ([folder.job], ["--job", "mirror"]):
        restored = invoke("trash", "restore", *job, *arguments)

        assert restored.exit_code == 0, restored.output
        found = back.stat()
        assert (back.read_text(), oct(found.st_mode), found.st_mtime) == ("two", oct(0o100640), 1_000)
        back.unlink()
    assert not [each for each in folder.path.iterdir() if each.name.startswith(".")], "nothing unfinished stays"


def test_a_trash_without_a_job_says_what_to_give(folder: Folder) -> None:
    refused = invoke("trash", "list")
    assert (refused.exit_code, "trash list JOB_FILE`" in refused.output) == (2, True)


def test_cleanup_empties_the_slots_once_their_time_is_over(folder: Folder) -> None:
    Path(folder.job).write_text(COPY_JOB + "trash_keep_s: 0\n", encoding="utf-8")
    folder.run()
    folder.change()
    folder.run()

    cleaned = ask("cleanup", folder.job)

    assert cleaned["docs"]["remaining"] == 0
    assert ask("trash", "list", folder.job) == []
    (verified,) = ask("verify", folder.job)
    assert verified["faults"] == []


def test_another_log_is_stopped_and_goes_on_after_setting_aside(
    folder: Folder, another_log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.run()
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", another_log)
    folder.write("a.txt", "changed", at_s=3_000)
    blocked = invoke("run", folder.job)
    assert (blocked.exit_code, folder.at("a.txt").read_text()) == (1, "one")

    adopted = invoke("reconcile", folder.job, "--adopt", "--yes")
    assert "copies are not adopted" in adopted.output
    aside = invoke("reconcile", folder.job, "--set-aside", "--yes")
    assert aside.exit_code == 0, aside.output

    folder.run()
    assert folder.at("a.txt").read_text() == "changed"
    assert folder.at("b.txt").read_text() == "two", "the log doesn't know that it published this file"


def test_file_sets_that_a_finder_finds_are_partitions_and_all_of_them_are_copied(folder: Folder) -> None:
    Path(folder.job).write_text(
        "job: mirror\nkind: distcp\nsource: ./in\ndestination: ./out\nfinder: {kind: stream, pattern: '*/%Y-%m-%d'}\n",
        encoding="utf-8",
    )
    folder.write("2024-05-01/a.txt", "first", at_s=1_000)
    folder.write("2024-05-02/a.txt", "second", at_s=1_000)

    report = ask("run", folder.job)

    assert {(each["urn"], each["partition"]["key"], each["outcome"]) for each in report["datasets"]} == {
        ("docs", "2024-05-01", "COMMITTED"),
        ("docs", "2024-05-02", "COMMITTED"),
    }
    assert folder.at("2024-05-02/a.txt").read_text() == "second"
    assert not folder.at("a.txt").exists(), "it is in no file set"
    folder.write("2024-05-01/a.txt", "changed", at_s=2_000)
    folder.write("2024-05-02/a.txt", "changed", at_s=2_000)
    ask("run", folder.job, "--partition", "2024-05-01")
    assert folder.at("2024-05-01/a.txt").read_text() == "changed"
    assert folder.at("2024-05-02/a.txt").read_text() == "second"


def test_what_is_for_rows_refuses_copies_and_says_so(folder: Folder) -> None:
    for arguments in (("compact", folder.job), ("discover", folder.job)):
        found = invoke(*arguments)
        assert found.exit_code == 2, found.output
        assert "expected a job that reads rows (ingest), found one of the kind 'distcp'" in found.output
    found = invoke("run", folder.job, "--start-over")
    assert "is for topics, and mirror copies files" in found.output


@contextmanager
def streaming(folder: Folder, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """`gobblin-assets stream`, which is killed at the end at the latest."""
    command = [sys.executable, "-m", "gobblin_assets.cli", "stream", folder.job, "--every", "0.2", *options]
    errors = (folder.path / "stderr").open("w", encoding="utf-8")
    with errors, subprocess.Popen(command, stderr=errors, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def stop(folder: Folder, process: "subprocess.Popen[str]") -> str:
    """End the stream by a signal; what it said."""
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    return said(folder)


def said(folder: Folder) -> str:
    return (folder.path / "stderr").read_text(encoding="utf-8")


def count_runs(folder: Folder) -> int:
    return len(ask("history", "--limit", "1000"))


def wait_for_runs(folder: Folder) -> None:
    """Until two more runs have begun and ended."""
    begun = count_runs(folder)
    wait_for(lambda: count_runs(folder) > begun + 2)


def test_a_stream_repeats_the_copy_until_it_is_told_to_stop_and_publishes_only_what_is_new(folder: Folder) -> None:
    with streaming(folder, "--no-dagster") as process:
        wait_for(folder.at("b.txt").exists)
        wait_for_runs(folder)
        folder.write("sub/late.txt", "late", at_s=2_000)
        wait_for(folder.at("sub/late.txt").exists)
        wait_for_runs(folder)
        lines = stop(folder, process)
    assert process.returncode == 0, lines
    assert "stopping after the publication under way" in lines
    assert "docs: version 2 is published: 1 file\n" in lines
    (found,) = ask("status")
    assert not found["open_sequence"]
    assert found["version"] == 2, "a run that finds nothing new publishes nothing"


def test_an_empty_set_is_published_once(folder: Folder) -> None:
    Path(folder.job).write_text(COPY_JOB.replace(", deletes: ours", ""), encoding="utf-8")
    shutil.rmtree(folder.path / "in/docs")
    (folder.path / "in/docs").mkdir()
    with streaming(folder, "--no-dagster") as process:
        wait_for(lambda: bool(ask("status")) and ask("status")[0]["version"] == 1)
        wait_for_runs(folder)
        stop(folder, process)
    (found,) = ask("status")
    assert (process.returncode, found["version"]) == (0, 1)


def test_a_stream_remembers_directories_without_publishing_them_again(folder: Folder) -> None:
    job = COPY_JOB.replace("deletes: ours", "skip_unchanged_directories: true")
    Path(folder.job).write_text(job, encoding="utf-8")
    folder.write("sub/c.txt", "three", at_s=1_000)
    folder.run()
    (before,) = ask("status")
    os.utime(folder.path / "in/docs/sub", (3_000, 3_000))
    with streaming(folder, "--no-dagster") as process:
        wait_for(lambda: ask("status")[0]["version"] > before["version"])
        wait_for_runs(folder)
        stop(folder, process)
    (after,) = ask("status")
    assert after["version"] == before["version"] + 1, "what the log remembers was published once"
    (planned,) = ask("plan", folder.job)
    assert any("1 directory" in note for note in planned["notes"]), planned["notes"]


def test_a_stream_says_a_failure_once_and_ends_well_when_it_is_over(folder: Folder) -> None:
    Path(folder.job).write_text(
        "job: mirror\nkind: distcp\nsource: ./in\ndestination: ./out\nfinder: {kind: glob, pattern: '*'}\n",
        encoding="utf-8",
    )
    bad = folder.path / "in/bad"
    with streaming(folder, "--no-dagster") as process:
        wait_for(folder.at("b.txt").exists)
        bad.mkdir()
        (bad / "link").symlink_to("elsewhere")
        wait_for(lambda: "bad: " in said(folder))
        wait_for_runs(folder)
        (bad / "link").unlink()
        wait_for(lambda: "bad: it is well again" in said(folder))
        shutil.rmtree(bad)
        wait_for_runs(folder)
        lines = stop(folder, process)
    assert lines.count("bad: links: ") == 1, lines
    assert process.returncode == 0, "what has gone does not fail the stream"


def test_dagster_hears_of_datasets_that_a_stream_finds_later(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(folder.job).write_text(
        "job: mirror\nkind: distcp\nsource: ./in\ndestination: ./out\nfinder: {kind: glob, pattern: '*'}\n",
        encoding="utf-8",
    )
    (tmp_path / "dagster").mkdir()
    (tmp_path / "dagster/dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.setenv("GOBBLIN_REPORT_TO_DAGSTER", "wait")
    with streaming(folder) as process:
        wait_for(folder.at("b.txt").exists)
        for name in ("good", "bad"):
            (folder.path / "in" / name).mkdir()
        (folder.path / "in/bad/link").symlink_to("elsewhere")
        (folder.path / "in/good/file").write_text("late", encoding="utf-8")
        wait_for((folder.path / "out/good/file").exists)
        wait_for(lambda: "bad: " in said(folder))
        lines = stop(folder, process)
    assert process.returncode == 1, lines
    with dg.DagsterInstance.from_config(str(tmp_path / "dagster")) as instance:
        assert instance.get_latest_materialization_event(dg.AssetKey(["mirror", "good"])) is not None
        check = dg.AssetCheckKey(dg.AssetKey(["mirror", "bad"]), "gobblin_published")
        assert instance.event_log_storage.get_asset_check_execution_history(check, limit=1)


def wait_for(happened: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end_s, "it has not happened"
        time.sleep(0.05)
