"""Copies whose destination is an object store: files become objects of versitygw, by the command line."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from gobblin_assets.commit import execution
from gobblin_assets.destinations.claims import WORK_NAME
from gobblin_assets.fs.s3.object_files import S3ObjectFiles
from tests.support.command_lake import ask, invoke
from tests.support.faulty_store import Message, StoreFault, faulty_store
from tests.support.s3_servers import S3Server

pytestmark = pytest.mark.turns(of=8)

LARGE = bytes(range(256)) * 140_000
"""More than two parts."""


@dataclass(frozen=True)
class Lake:
    files: S3ObjectFiles
    root: str
    source: Path
    job: str

    def write(self, path: str, content: bytes) -> None:
        place = self.source / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)

    def written(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.source)): path.read_bytes() for path in self.source.rglob("*") if path.is_file()
        }

    def copied(self) -> dict[str, bytes]:
        found = {}
        for entry in self.files.list_objects(self.root):
            key = entry.path.removeprefix(f"{self.root}/")
            if not key.startswith(f"{WORK_NAME}/"):
                with self.files.open_input(entry.path) as stream:
                    found[key] = stream.read()
        return found


@pytest.fixture
def lake(versitygw: S3Server, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    for name, value in versitygw.environment.items():
        monkeypatch.setenv(name, value)
    root = f"/{versitygw.make_bucket()}/mirror"
    job = tmp_path / "mirror.yaml"
    job.write_text(
        f"job: mirror\nkind: distcp\nsource: {tmp_path / 'in'}\ndestination: s3:/{root}\ndefaults: {{deletes: ours}}\n"
    )
    return Lake(versitygw.open(), root, tmp_path / "in", str(job))


def test_a_file_that_says_that_it_is_empty_and_has_bytes_becomes_no_object(lake: Lake) -> None:
    job = Path(lake.job)
    job.write_text(job.read_text(encoding="utf-8").replace(str(lake.source), "/proc/sys/kernel/pty"), encoding="utf-8")

    found = invoke("run", lake.job)

    assert found.exit_code != 0
    assert "says 0 bytes, and has more" in found.output
    assert lake.copied() == {}


@pytest.mark.core
def test_files_become_objects_and_only_what_differs_is_copied_again(lake: Lake) -> None:
    lake.write("a/one", b"first")
    lake.write("a/b/two", b"second")
    lake.write("empty", b"")
    lake.write("large", LARGE)
    of_first = (lake.source / "a/one").stat().st_mtime_ns
    assert invoke("run", lake.job).exit_code == 0
    assert lake.copied() == lake.written()
    before = {entry.path: (entry.modified_at, entry.etag) for entry in lake.files.list_objects(f"{lake.root}/a")}

    lake.write("a/one", b"other")
    (lake.source / "empty").unlink()
    lake.write("new/three", b"third")
    plan = invoke("plan", lake.job)
    assert plan.exit_code == 0
    assert invoke("run", lake.job).exit_code == 0

    assert lake.copied() == lake.written()
    after = {entry.path: (entry.modified_at, entry.etag) for entry in lake.files.list_objects(f"{lake.root}/a")}
    assert {path for path in before if before[path] == after[path]} == {f"{lake.root}/a/b/two"}
    assert not list(lake.files.list_uploads(lake.root))
    kept = ask("trash", "list", lake.job)
    assert sorted((each["path"].rpartition("/")[2], each["was_removed"]) for each in kept) == [
        ("empty", True),
        ("one", False),
    ]
    assert invoke("verify", lake.job).exit_code == 0
    back = lake.source.with_name("back")
    restored = invoke("trash", "restore", lake.job, "--dataset", "tree", "--path", "a/one", "--to", str(back))
    assert restored.exit_code == 0, restored.output
    assert (back.read_bytes(), back.stat().st_mtime_ns) == (b"first", of_first)


def test_a_rate_is_kept(lake: Lake) -> None:
    job = Path(lake.job)
    job.write_text(f"{job.read_text()}rate: {{name: nightly, files_per_s: 4, bytes_per_s: 1e9}}\n")
    for number in range(8):
        lake.write(f"f{number}", b"x")
    started_s = time.monotonic()

    ran = invoke("run", lake.job)

    assert ran.exit_code == 0, ran.output
    assert time.monotonic() - started_s > 8 / 4
    assert lake.copied() == lake.written()


def test_checksums_of_both_sides_are_compared(lake: Lake) -> None:
    job = Path(lake.job)
    job.write_text(job.read_text().replace("{deletes: ours}", "{deletes: ours, same: checksum}"))
    lake.write("a/one", b"first")
    lake.write("large", LARGE)
    assert invoke("run", lake.job).exit_code == 0
    lake.write("a/one", b"other")
    os.utime(lake.source / "large")
    before = {entry.path: entry.modified_at for entry in lake.files.list_objects(lake.root)}

    ran = invoke("run", lake.job)

    assert ran.exit_code == 0, ran.output
    assert lake.copied() == lake.written()
    after = {entry.path: entry.modified_at for entry in lake.files.list_objects(lake.root)}
    assert before[f"{lake.root}/large"] == after[f"{lake.root}/large"]


@pytest.mark.rotating(of=3)
@pytest.mark.parametrize("kind", [StoreFault.CUT, StoreFault.BROKEN], ids=["without the effect", "with the effect"])
def test_a_store_that_answers_no_writes_blocks_nothing(
    lake: Lake, versitygw: S3Server, monkeypatch: pytest.MonkeyPatch, kind: StoreFault
) -> None:
    """What was not confirmed is looked at, and done again, by this run or by the next."""
    monkeypatch.setattr(execution, "NO_ANSWER_WAITS_S", (0.0,) * len(execution.NO_ANSWER_WAITS_S))
    for number in range(3):
        lake.write(f"a/f{number}", b"first")
    with faulty_store(versitygw.address) as proxy:
        monkeypatch.setenv("GOBBLIN_S3_ENDPOINT_URL", proxy.endpoint_url)
        proxy.choose = lambda request: kind if "/mirror/" in request.target and is_completion(request) else None
        ran = invoke("run", lake.job)
        if kind is StoreFault.BROKEN:
            assert ran.exit_code == 0, ran.output
        else:
            assert ran.exit_code == 1, ran.output
            assert "can't say whether this happened" in ran.output
            assert [line["state"] for line in ask("commit", "list")] == ["PREPARED"]
            proxy.choose = lambda _request: None
            again = invoke("run", lake.job)
            assert again.exit_code == 0, again.output
    assert lake.copied() == lake.written()


def is_completion(request: Message) -> bool:
    return request.method == "POST" and "uploadId=" in request.target and "/.gobblin/" not in request.target


@pytest.mark.parametrize("name", ["a\ufffd", "a\x01", "a\uffff"], ids=ascii)
def test_a_name_that_no_listing_tells_is_refused_before_it_is_published(lake: Lake, name: str) -> None:
    """The next run could not list the destination."""
    lake.write("kept", b"first")
    lake.write("tabs\tand\nlines + %41 ü", b"first")
    assert invoke("run", lake.job).exit_code == 0
    lake.write(f"b/{name}", b"odd")

    refused = invoke("run", lake.job)

    assert refused.exit_code == 1
    assert ascii(f"b/{name}")[1:-1] in refused.output
    assert [line.path for line in lake.files.list_objects(f"{lake.root}/b")] == []
    (lake.source / "b" / name).unlink()
    lake.write("kept", b"second")
    assert invoke("run", lake.job).exit_code == 0
    assert lake.copied() == lake.written()


def test_no_other_job_copies_into_the_tree(lake: Lake, tmp_path: Path) -> None:
    lake.write("a/one", b"first")
    assert invoke("run", lake.job).exit_code == 0
    other = tmp_path / "other.yaml"
    other.write_text(f"job: other\nkind: distcp\nsource: {tmp_path / 'in'}\ndestination: s3:/{lake.root}/inside\n")

    refused = invoke("run", str(other))

    assert refused.exit_code != 0
    assert "to which the job 'mirror' copies" in refused.output


@pytest.mark.rotating(of=3)
@pytest.mark.parametrize("chosen", ["include: [/mine/logs/**]", "exclude: [.gobblin/]", "manifest"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_tree_inside_is_found_whatever_a_run_chooses(
    lake: Lake, tmp_path: Path, chosen: str, *, is_first: bool
) -> None:
    """At first by a search of the bucket, and later on the way to each name."""
    lake.write("a/one", b"first")
    lake.write("mine/logs/today", b"first")
    inner = tmp_path / "inner.yaml"
    inner.write_text(f"job: inner\nkind: distcp\nsource: {tmp_path / 'in/mine'}\ndestination: s3:/{lake.root}/mine\n")
    if is_first:
        assert invoke("run", str(inner)).exit_code == 0
    else:
        Path(lake.job).write_text(Path(lake.job).read_text() + "datasets: [{urn: a}]\n")
        assert invoke("run", lake.job).exit_code == 0
        assert lake.files.put_if_absent(f"{lake.root}/mine/{WORK_NAME}/claim.json", b'{"job": "inner"}')
        assert lake.files.put_if_absent(f"{lake.root}/mine/logs/today", b"theirs")
    originals = lake.copied()
    lake.write("mine/logs/today", b"second")
    (tmp_path / "manifest").write_text('{"path": "mine/logs/today"}\n')
    options = (
        f"finder: {{kind: manifest, path: {tmp_path / 'manifest'}}}\n"
        if chosen == "manifest"
        else f"defaults: {{{chosen}, deletes: all}}\n"
    )
    Path(lake.job).write_text(
        f"job: mirror\nkind: distcp\nsource: {tmp_path / 'in'}\ndestination: s3:/{lake.root}\n{options}"
    )

    refused = invoke("run", lake.job)

    assert refused.exit_code != 0
    assert "lies inside" in refused.output
    assert lake.copied() == originals
    # The claim of a tree around it came first, or not.
    assert (invoke("run", str(inner)).exit_code == 0) is is_first


@pytest.mark.thorough
def test_a_store_that_ignores_conditions_is_refused(
    moto: S3Server, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    for name, value in moto.environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "in").mkdir()
    job = tmp_path / "mirror.yaml"
    place = f"s3://{moto.make_bucket()}/mirror"
    job.write_text(f"job: mirror\nkind: distcp\nsource: {tmp_path / 'in'}\ndestination: {place}\n")

    refused = invoke("run", str(job))

    assert refused.exit_code != 0
    assert "ignores If-Match on completing an upload" in refused.output
    assert not list(moto.open().list_objects(f"/{place.removeprefix('s3://')}"))
