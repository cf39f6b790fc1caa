"""The example package with a kind of step: found by its entry point in every process, killed, recovered, abandoned."""

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.errors import ConflictError
from gobblin_assets.model.state import SequenceId
from tests.support import postgres
from tests.support.custom_steps import registered
from tests.support.examples import install_example
from tests.support.lake import Lake, World

KIND = "gobblin_postgres_pointer.move"
PUBLISH = ("-m", "gobblin_postgres_pointer.publish")
COMMAND = ("-m", "gobblin_assets.cli")
COMMAND_S_MAX = 280


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    install_example("gobblin_postgres_pointer", folder)
    return folder


@dataclass
class Shop:
    """A log, a lake, and a foreign database with the pointers."""

    site: Path
    directory: Path
    log_url: str
    pointers_url: str
    log: World
    pointers: psycopg.Connection[Any]

    def run(self, *arguments: str, failpoint: str = "") -> "subprocess.CompletedProcess[str]":
        """Run in a process of its own whose environment has the package."""
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(self.site),
            "GOBBLIN_DATABASE_URL": self.log_url,
            "POINTERS_URL": self.pointers_url,
            "GOBBLIN_HOME": str(self.directory / "home"),
        }
        if failpoint:
            environment["GOBBLIN_FAILPOINT"] = failpoint
        command = [sys.executable, *arguments]
        answer = subprocess.run(
            command, cwd=self.directory, env=environment, capture_output=True, text=True, timeout=COMMAND_S_MAX
        )
        self.log.expire_leases()
        self.log.make_due()
        return answer

    def publish(self, name: str, *, failpoint: str = "") -> "subprocess.CompletedProcess[str]":
        files = self.directory / name
        files.mkdir(exist_ok=True)
        pq.write_table(pa.table({"city": [name, "elsewhere"]}), files / "a.parquet")
        arguments = {"job": "maps", "dataset": "cities", "lake": self.lake, "files": str(files)}
        return self.run(*PUBLISH, *(part for key, value in arguments.items() for part in (f"--{key}", value)),
                        "--pointers", "POINTERS_URL", failpoint=failpoint)  # fmt: skip

    @property
    def lake(self) -> str:
        return str(self.directory / "lake")

    def pointer(self) -> str | None:
        """The pointer's target."""
        row = self.pointers.execute("SELECT location FROM pointer WHERE dataset = 'maps/cities'").fetchone()
        return None if row is None else str(row[0])

    def cities(self) -> list[str] | None:
        """The cities at the pointer's target, read from the files there; None without a pointer."""
        location = self.pointer()
        return None if location is None else pq.read_table(location)["city"].to_pylist()

    def open_sequence(self) -> SequenceId:
        (sequence,) = self.log.stores.commits.list_open(None, limit=10)
        return sequence.sequence_id

    def versions(self) -> list[Path]:
        return sorted(path for path in Path(self.lake, "maps", "data", "cities").iterdir())


@pytest.fixture
def shop(site: Path, server: EmbeddedServer, database_url: str, tmp_path: Path) -> Iterator[Shop]:
    with postgres.temporary_database(server) as name:
        url = server.url(name).replace("postgresql+psycopg://", "postgresql://")
        world = World(Lake(database_url, str(tmp_path)))
        with psycopg.connect(url, autocommit=True) as pointers:
            yield Shop(site, tmp_path, database_url, url, world, pointers)
        world.close()


@pytest.fixture
def installed(site: Path, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package is in this process's environment too."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("POINTERS_URL", shop.pointers_url)
    with registered():
        yield


def test_killed_on_either_side_of_the_step_it_is_completed_by_a_fresh_process(shop: Shop) -> None:
    assert shop.publish("Arles", failpoint="step_before=kill@2").returncode == -signal.SIGKILL
    sequence_id = shop.open_sequence()

    # This process does not have the package: only the sequence is stopped.
    shop.log.operations().recover_due(None, on_publication=lambda _publication: None)
    blocked = shop.log.stores.commits.get(sequence_id)
    assert blocked.state == "BLOCKED"
    assert "Install the package 'gobblin-postgres-pointer'" in (blocked.last_error or "")
    assert KIND in (blocked.last_error or "")

    resumed = shop.run(*COMMAND, "commit", "resume", str(sequence_id))
    assert resumed.returncode == 0, resumed.stderr + resumed.stdout
    assert shop.cities() == ["Arles", "elsewhere"]

    assert shop.publish("Bern", failpoint="step_after=kill@2").returncode == -signal.SIGKILL
    assert shop.cities() == ["Bern", "elsewhere"]
    recovered = shop.run(*COMMAND, "commit", "recover")
    assert recovered.returncode == 0, recovered.stderr + recovered.stdout
    assert shop.cities() == ["Bern", "elsewhere"]
    assert shop.log.stores.commits.list_open(None, limit=10) == []


@pytest.mark.usefixtures("installed")
def test_killed_on_either_side_of_the_step_it_is_given_up_for_good(shop: Shop) -> None:
    published = shop.publish("Arles")
    assert "version 1: 1 files, 2 rows" in published.stdout, published.stderr
    before, versions = shop.pointer(), shop.versions()
    operations = shop.log.operations()

    shop.publish("Bern", failpoint="step_before=kill@2")
    never_moved = shop.open_sequence()
    operations.abandon(never_moved, reason="a test")
    assert shop.log.stores.commits.get(never_moved).state == "ABORTED"
    assert (shop.pointer(), shop.versions()) == (before, versions)
    table = importlib.import_module("gobblin_postgres_pointer.table")
    with table.open_pointer_table("POINTERS_URL") as opened:
        # A process that was paused before its step wakes up now and does this.
        opened.move(str(never_moved), "maps/cities", "late")
        assert opened.undo(str(never_moved), "maps/cities") == "never_happened"
    assert shop.pointer() == before

    shop.publish("Bern", failpoint="step_after=kill@2")
    moved, ours = shop.open_sequence(), shop.pointer()
    assert ours != before
    shop.pointers.execute("UPDATE pointer SET location = 'theirs'")
    with pytest.raises(ConflictError, match="the pointer of maps/cities was changed by somebody else"):
        operations.abandon(moved, reason="a test")
    assert shop.pointer() == "theirs"
    shop.pointers.execute("UPDATE pointer SET location = %s", [ours])
    operations.recover_due(None, on_publication=lambda _publication: None)
    assert shop.log.stores.commits.get(moved).state == "ABORTED"
    assert (shop.pointer(), shop.versions()) == (before, versions)
