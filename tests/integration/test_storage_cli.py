"""The commands that compare log and storage, as a shell sees them: verify and reconcile."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from gobblin_assets.cli import main
from gobblin_assets.commit.published.verification import PROGRESS_S, VerificationProgress
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from tests.support.command_lake import make_lake, write_job
from tests.support.lake import URNS, Lake, World, start_worker
from tests.support.restoring import Backup, backups

pytestmark = pytest.mark.turns(of=8)

LOST, OTHER = URNS


@pytest.fixture
def lake(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    return make_lake(database_url, tmp_path, monkeypatch)


@pytest.fixture
def world(lake: Lake) -> Iterator[World]:
    opened = World(lake)
    yield opened
    opened.close()


@pytest.fixture
def backup(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backup]:
    """From its restore on, commands work on the restored log."""
    with backups(server) as take:

        def restore(world: World) -> World:
            restored = take(world)
            monkeypatch.setenv("GOBBLIN_DATABASE_URL", restored.lake.database_url)
            return restored

        yield restore


def invoke(lake: Lake, command: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, [command, str(Path(lake.directory, "job.yaml")), *arguments])


def ask(lake: Lake, command: str, *arguments: str, code: int) -> Any:
    result = invoke(lake, command, *arguments, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def faults_of(lake: Lake, *arguments: str) -> dict[str, list[dict[str, Any]]]:
    found = ask(lake, "verify", *arguments, code=1)
    return {each["urn"]: each["faults"] for each in found if each["faults"]}


def flip_a_byte_of_a_page(path: Path) -> None:
    """Damage a byte like a disk: neither length nor time change, and the file still decodes."""
    column = pq.read_metadata(path).row_group(0).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[start + column.total_compressed_size - 1] ^= 0x01
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


class TestVerify:
    @pytest.mark.core
    def test_what_was_published_is_there(self, lake: Lake, world: World) -> None:
        world.run()
        world.run(mode=Mode.REFRESH)

        for options in ((), ("--checksums",)):
            found = ask(lake, "verify", *options, code=0)

            assert {each["urn"]: each["file_count"] for each in found} == {
                urn: len(world.published_paths(urn)) for urn in lake.urns
            }
            assert all((each["read_bytes"] > 0) == bool(options) for each in found)
        assert "faults" not in invoke(lake, "verify").stdout

    @pytest.mark.core
    def test_each_kind_of_fault_is_named_with_its_file_and_only_of_its_dataset(self, lake: Lake, world: World) -> None:
        world.run()
        gone, longer, replaced, *_others = map(Path, sorted(world.published_paths(LOST)))
        gone.unlink()
        longer.write_bytes(longer.read_bytes() + b"x")
        content = replaced.read_bytes()
        replaced.unlink()
        replaced.write_bytes(content)
        stranger = gone.parent.parent / "stranger.parquet"
        stranger.write_bytes(content)

        found = faults_of(lake)

        assert {(each["path"], each["damage"]) for each in found[LOST]} == {
            (str(gone), "missing"),
            (str(longer), "other length"),
            (str(replaced), "replaced"),
            (str(stranger), "unknown"),
        }
        assert list(found) == [LOST]
        result = invoke(lake, "verify")
        assert result.exit_code == 1
        assert "another file of the same length" in result.stdout

    def test_a_flipped_byte_is_found_only_by_reading(self, lake: Lake, world: World) -> None:
        world.run()
        path = Path(world.published_paths(LOST)[0])
        flip_a_byte_of_a_page(path)
        assert pq.ParquetFile(path).read().num_rows > 0, "it decodes: only the checksum tells"
        ask(lake, "verify", code=0)

        found = faults_of(lake, "--checksums")

        assert [(each["path"], each["damage"]) for each in found[LOST]] == [(str(path), "unreadable")]
        assert "CRC" in found[LOST][0]["detail"]

    @pytest.mark.parametrize("point", ["step_after", "retire_marked"])
    def test_files_of_open_sequences_and_of_replaced_generations_are_no_strangers(
        self, lake: Lake, world: World, point: str
    ) -> None:
        world.run()
        worker = start_worker(lake, failpoint=f"{point}=kill", mode=Mode.REFRESH)
        assert worker.wait() == -signal.SIGKILL
        assert len(world.stored_files()) > sum(len(world.published_paths(urn)) for urn in lake.urns)

        ask(lake, "verify", code=0)

    def test_files_of_a_publication_that_the_log_forgot_are_named_by_it(
        self, lake: Lake, world: World, backup: Backup
    ) -> None:
        world.run()
        restored = backup(world)
        lake.add_rows(LOST, 5)
        (report,) = world.run(urns=[LOST]).datasets
        assert report.publication is not None

        found = faults_of(lake)

        assert {each["damage"] for each in found[LOST]} == {"unknown"}
        assert {each["sequence_id"] for each in found[LOST]} == {str(report.publication.sequence_id)}
        assert "is not in the log" in found[LOST][0]["detail"]
        assert restored.watermark(LOST) == 13

    def test_only_the_named_dataset_is_looked_at(self, lake: Lake, world: World) -> None:
        world.run()
        Path(world.published_paths(LOST)[0]).unlink()

        assert [each["urn"] for each in ask(lake, "verify", "--dataset", OTHER, code=0)] == [OTHER]

    def test_progress_is_a_line_every_few_seconds(self) -> None:
        class Clock(SystemClock):
            now_s = 0.0

            def monotonic(self) -> float:
                return self.now_s

        clock, lines = Clock(), list[str]()
        progress = VerificationProgress(clock, lines.append)
        for _file in range(300):
            clock.now_s += PROGRESS_S / 100
            progress.add(read_bytes=1 << 20)

        assert len(lines) in (2, 3)
        assert lines[0].startswith("verified 10")
        assert lines[0].endswith("MiB, 20 MiB/s")


@pytest.mark.core
def test_a_file_damaged_between_seal_and_finish_blocks_its_dataset_alone_and_is_named(lake: Lake, world: World) -> None:
    assert start_worker(lake, failpoint="seal_committed=kill").wait() == -signal.SIGKILL
    world.expire_leases()
    (sequence,) = world.stores.commits.list_open(None, limit=10)
    attempt = world.stores.commits.list_attempts(sequence.sequence_id)[0]
    staged = max(Path(attempt.staging_path).rglob("*.parquet"))
    staged.write_bytes(staged.read_bytes() + b"x")

    report = world.run()

    sibling = next(urn for urn in lake.urns if urn != sequence.urn)
    assert [each.urn for each in report.failed] == [sequence.urn]
    assert world.watermark(sibling) == 13
    (line,) = json.loads(CliRunner().invoke(main, ["commit", "list", "--json"]).stdout)
    assert line["state"] == "BLOCKED"
    assert f"{staged.name} is not the file that was staged" in line["last_error"]
    assert "Put the file back and resume, or abandon" in line["last_error"]
    assert "BLOCKED" in CliRunner().invoke(main, ["commit", "list"]).stdout


class TestReconcile:
    @pytest.fixture
    def restored(self, world: World, backup: Backup) -> World:
        """Two publications of one dataset are missing in the restored log."""
        world.run()
        restored = backup(world)
        for _run in range(2):
            world.lake.add_rows(LOST, 5)
            world.run(urns=[LOST])
        return restored

    def test_a_log_that_knows_everything_is_told_so(self, lake: Lake, world: World) -> None:
        world.run()

        result = invoke(lake, "reconcile")

        assert result.exit_code == 0, result.output
        assert "has all" in result.stderr

    @pytest.mark.parametrize("way", [(), ("--adopt",), ("--set-aside",)])
    def test_without_yes_it_says_what_it_would_do_and_does_nothing(
        self, lake: Lake, restored: World, way: tuple[str, ...]
    ) -> None:
        before = restored.stored_files()

        result = invoke(lake, "reconcile", *way)

        assert result.exit_code == 1, result.output
        assert "Nothing was changed; add --yes to do it" in result.stderr
        assert ("--adopt would execute 2 publications again" in result.stderr) == (way != ("--set-aside",))
        assert ("--set-aside would move 2 publications" in result.stderr) == (way != ("--adopt",))
        assert OTHER not in result.stdout
        assert restored.stored_files() == before
        assert [each.urn for each in restored.run().failed] == [LOST]
        fence = "SELECT fence FROM gobblin.lease JOIN gobblin.dataset ON dataset_id = lane_id WHERE urn = :urn"
        assert ask(lake, "reconcile", code=1)["behind"][LOST]["fence"] == restored.scalar(fence, urn=LOST)

    @pytest.mark.core
    def test_adopting_is_one_command(self, lake: Lake, restored: World) -> None:
        done = ask(lake, "reconcile", "--adopt", "--yes", code=0)

        assert len(done["done"][0]["adopted"]) == 2
        assert not restored.run().failed
        restored.check_exactly_once()
        history = json.loads(CliRunner().invoke(main, ["history", "--json"]).stdout)
        assert "reconcile" in {each["figures"].get("kind") for each in history}

    def test_setting_aside_is_one_command_and_says_where(self, lake: Lake, restored: World) -> None:
        result = invoke(lake, "reconcile", "--dataset", LOST, "--set-aside", "--yes")

        assert result.exit_code == 0, result.output
        assert f"{LOST}: moved" in result.stderr
        assert ".set-aside" in result.stderr
        assert not restored.run().failed
        restored.check_exactly_once()

    def test_why_adopting_is_refused_is_said_and_setting_aside_offered(self, lake: Lake, restored: World) -> None:
        lost = next(
            path
            for path in restored.stored_files()
            if path not in set(restored.published_paths(OTHER)) and (path not in set(restored.published_paths(LOST)))
        )
        Path(lost).unlink()

        result = invoke(lake, "reconcile", "--adopt", "--yes")

        assert result.exit_code == 1
        assert "can't be adopted" in result.stderr
        assert f"{lost} is not there" in result.stderr
        assert "--set-aside" in result.stderr
        assert invoke(lake, "reconcile", "--set-aside", "--yes").exit_code == 0
        restored.run()
        restored.check_exactly_once()

    def test_files_that_a_lost_refresh_removed_are_announced_with_the_way_out(
        self, lake: Lake, world: World, backup: Backup
    ) -> None:
        world.run()
        restored = backup(world)
        world.run(urns=[LOST], mode=Mode.REFRESH)

        result = invoke(lake, "reconcile", "--set-aside", "--yes")

        assert result.exit_code == 0, result.output
        assert "are not there" in result.stderr
        assert "--mode refresh" in result.stderr
        restored.run(mode=Mode.REFRESH)
        restored.check_exactly_once()


class TestDestination:
    def test_a_job_moves_with_its_files_by_one_command(self, lake: Lake, world: World) -> None:
        world.run()
        there = Path(lake.directory, "there")
        before = list_destinations(lake)
        assert [(each["job"], each["destination"], each["state"]) for each in before] == [
            ("crash", f"file://{lake.root}", "there")
        ]
        refused = CliRunner().invoke(main, ["destination", "move", "crash", str(there)])
        assert refused.exit_code == 2
        assert "are not at file://" in refused.output
        Path(lake.root).rename(there)
        assert list_destinations(lake)[0]["state"] == "not there: is it mounted?"

        moved = CliRunner().invoke(main, ["destination", "move", "crash", str(there), "--json"])

        assert moved.exit_code == 0, moved.output
        assert json.loads(moved.stdout)["new_uri"] == f"file://{there}"
        assert [each["state"] for each in list_destinations(lake)] == ["there"]
        for command in ("cleanup", "reconcile"):
            elsewhere = invoke(lake, command)
            assert elsewhere.exit_code == 2, elsewhere.output
            assert "the log has the job crash at" in elsewhere.output
        write_job(lake, there)
        assert [each["urn"] for each in ask(lake, "verify", "--checksums", code=0)] == sorted(lake.urns)
        ask(lake, "cleanup", code=0)

    def test_cleanup_by_another_root_removes_nothing(self, lake: Lake, world: World) -> None:
        world.run()
        world.run(mode=Mode.REFRESH)
        before = world.stored_files()
        write_job(lake, f"{lake.directory}/other")
        assert invoke(lake, "cleanup").exit_code == 2
        assert world.stored_files() == before

    def test_a_job_that_the_log_does_not_know_is_refused(self, lake: Lake) -> None:
        refused = CliRunner().invoke(main, ["destination", "move", "nobody", lake.root])
        assert refused.exit_code == 2
        assert "no destination of a job" in refused.output


def list_destinations(_lake: Lake) -> list[dict[str, Any]]:
    found = CliRunner().invoke(main, ["destination", "list", "--json"])
    assert found.exit_code == 0, found.output
    return list(json.loads(found.stdout))
