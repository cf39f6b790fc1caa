"""Copies whose source is an object store: objects of versitygw become files, by the command line."""

import os
import signal
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import pytest

from gobblin_assets.failpoints import Failpoint
from gobblin_assets.fs.objects import HasEtag, ObjectFiles, WriteOutcome
from gobblin_assets.jobs.copy.copy_assets import CopySets
from gobblin_assets.jobs.copy.parsing import read_copy
from gobblin_assets.jobs.copy.running import list_copy_datasets
from tests.support.command_lake import ask, invoke
from tests.support.s3_servers import S3Server

pytestmark = pytest.mark.turns(of=4)

LARGE = bytes(range(256)) * 40_000
"""More than one range."""


@dataclass(frozen=True)
class Bucket:
    files: ObjectFiles
    root: str
    job: str
    out: Path

    def put(self, key: str, content: bytes) -> None:
        """Make the object, or replace it."""
        path = f"{self.root}/{key}"
        found = self.files.find_object(path)
        if found is None:
            assert self.files.put_if_absent(path, content) is WriteOutcome.WRITTEN
            return
        upload = self.files.begin_upload(path, {})
        part = self.files.write_part(path, upload, 1, content, google_crc32c.value(content))
        assert self.files.complete_upload(path, upload, [part], HasEtag(found.etag)) is WriteOutcome.WRITTEN

    def remove(self, key: str) -> None:
        found = self.files.find_object(f"{self.root}/{key}")
        assert found is not None
        self.files.remove_object(found.path, found.etag)

    def copied(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.out)): path.read_bytes()
            for path in self.out.rglob("*")
            if path.is_file() and ".gobblin" not in path.parts and path.name != ".gobblin-destination.json"
        }


@pytest.fixture
def bucket(versitygw: S3Server, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    for name, value in versitygw.environment.items():
        monkeypatch.setenv(name, value)
    root = f"/{versitygw.make_bucket()}/in"
    job = tmp_path / "mirror.yaml"
    job.write_text(
        f"{{job: mirror, kind: distcp, source: 's3:/{root}', destination: ./out, "
        "datasets: [{urn: docs, deletes: ours}]}",
        encoding="utf-8",
    )
    return Bucket(versitygw.open(), root, str(job), tmp_path / "out")


def run(bucket: Bucket) -> None:
    found = invoke("run", bucket.job)
    assert found.exit_code == 0, found.output


def test_objects_become_files_and_only_what_differs_is_copied_again(bucket: Bucket) -> None:
    first = {"docs/a.txt": b"one", "docs/large": LARGE, "docs/d/ä b": b"", "docs/gone": b"gone", "docs/d/kept": b"kept"}
    for key, content in first.items():
        bucket.put(key, content)
    bucket.put("docs/marked/", b"")
    bucket.put("elsewhere/x", b"no dataset's")
    run(bucket)
    assert bucket.copied() == first
    assert (bucket.out / "docs/marked").is_dir()
    kept = (bucket.out / "docs/d/kept").stat()
    entry = bucket.files.find_object(f"{bucket.root}/docs/d/kept")
    assert entry is not None
    assert kept.st_mtime == entry.modified_at.timestamp()
    assert stat.S_IMODE(kept.st_mode) == 0o666 & ~_umask()

    bucket.put("docs/a.txt", b"longer")
    bucket.put("docs/d/new/deep", b"new")
    bucket.remove("docs/gone")
    (planned,) = ask("plan", bucket.job)
    changes = {each["path"]: each["action"] for each in planned["changes"]}
    assert changes == {"a.txt": "replace", "d/new": "create", "d/new/deep": "create", "gone": "remove"}
    run(bucket)
    second = {**first, "docs/a.txt": b"longer", "docs/d/new/deep": b"new"}
    del second["docs/gone"]
    assert bucket.copied() == second
    assert (bucket.out / "docs/d/kept").stat().st_ino == kept.st_ino
    assert "nothing differs" in invoke("run", bucket.job).output


@pytest.mark.thorough
@pytest.mark.parametrize("point", [Failpoint.FILE_JOURNALED, Failpoint.STAGED_BEFORE_SEAL, Failpoint.SEAL_COMMITTED])
def test_a_run_that_was_killed_is_completed_by_the_next(bucket: Bucket, point: Failpoint) -> None:
    contents = {f"docs/{number}": b"%d" % number * 1_000 for number in range(20)}
    for key, content in contents.items():
        bucket.put(key, content)
    job = Path(bucket.job)
    job.write_text(job.read_text(encoding="utf-8")[:-1] + ", lease: {ttl_s: 6, wait_s: 60}}", encoding="utf-8")
    command = [str(Path(sys.executable).with_name("gobblin-assets")), "run", bucket.job, "--no-dagster"]
    killed = subprocess.run(command, env={**os.environ, "GOBBLIN_FAILPOINT": f"{point}=kill"}, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    found = invoke("run", bucket.job, "--no-dagster")
    assert found.exit_code == 0, found.output
    assert bucket.copied() == contents
    if point is not Failpoint.SEAL_COMMITTED:
        assert "were there from an earlier attempt" in found.output


@pytest.mark.parametrize("trigger", [{}, {"marker": "_SUCCESS"}])
def test_a_sensor_sees_when_objects_changed(bucket: Bucket, trigger: dict[str, str]) -> None:
    finder = {"kind": "stream", "pattern": "logs/%Y-%m-%d"}
    written = {"job": "m", "kind": "distcp", "destination": str(bucket.out), "finder": finder, "trigger": trigger}
    job = read_copy({**written, "source": f"s3:/{bucket.root}"})
    name = trigger.get("marker", "a")
    bucket.put(f"logs/2026-01-02/{name}", b"one")
    bucket.put("logs/2026-01-03/other", b"one")

    def look() -> dict[str, str | None]:
        sets = CopySets(job, list_copy_datasets(job))
        return {each.key: sets.find_mark(each) for each in sets.list_sets()}

    before = look()
    assert set(before) == {"2026-01-02", "2026-01-03"}
    assert before["2026-01-02"] is not None
    assert (before["2026-01-03"] is None) is bool(trigger)
    assert look() == before
    bucket.put(f"logs/2026-01-02/{name}", b"two")
    after = look()
    assert after["2026-01-02"] not in {None, before["2026-01-02"]}
    assert after["2026-01-03"] == before["2026-01-03"]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_prefix_that_lost_all_its_objects_at_once_keeps_its_files(bucket: Bucket) -> None:
    """A store has no directory that could stand empty: one object that is removed is one object."""
    for key in ("docs/a", "docs/many/1", "docs/many/2", "docs/one/1", "docs/some/1", "docs/some/2"):
        bucket.put(key, key.encode())
    run(bucket)
    for key in ("docs/many/1", "docs/many/2", "docs/one/1", "docs/some/1"):
        bucket.remove(key)

    found = invoke("run", bucket.job)

    assert found.exit_code == 0, found.output
    assert "docs/many lost all its entries at once (2 files)" in " ".join(found.output.split())
    assert {*bucket.copied()} == {"docs/a", "docs/many/1", "docs/many/2", "docs/some/2"}
    assert invoke("run", bucket.job, "--confirm-deletes").exit_code == 0
    assert {*bucket.copied()} == {"docs/a", "docs/some/2"}
