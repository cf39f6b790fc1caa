"""Copies whose source is a bucket of Google's or a container of Azure's, by the command line: on real servers."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text

from tests.support.cloud_servers import CloudServer
from tests.support.command_lake import ask, fail_job, run_job
from tests.support.cutting_proxy import cutting_proxy
from tests.support.faulty_store import Message, StoreFault, faulty_store
from tests.support.s3_servers import S3Server

pytestmark = pytest.mark.turns(of=4)

BOTH = pytest.mark.parametrize("cloud", ["fake_gcs", "azurite"], indirect=True)
LARGE = os.urandom(1 << 20) * 20
"""Three ranges."""


@dataclass(frozen=True)
class Mirror:
    """``bucket``: with the dataset ``docs`` below ``in``. ``out``: the destination."""

    server: CloudServer
    bucket: str
    out: Path

    def write_job(self, *, options: str = "", destination: str = "") -> str:
        job = self.out.with_name("mirror.yaml")
        job.write_text(
            f"{{job: mirror, kind: distcp, source: '{self.bucket}/in', "
            f"destination: '{destination or self.out}', {options} datasets: [{{urn: docs, deletes: ours}}]}}",
            encoding="utf-8",
        )
        return str(job)

    def put_all(self, contents: Mapping[str, bytes]) -> None:
        for key, content in contents.items():
            self.server.put(self.bucket, f"in/docs/{key}", content)

    def copied(self) -> Counter[tuple[str, bytes]]:
        docs = self.out / "docs"
        return Counter((str(each.relative_to(docs)), each.read_bytes()) for each in docs.rglob("*") if each.is_file())


TREE = {
    "a b": b"one",
    "ä\U0001f40d": b"two",
    "100% %41+#": b"three",
    "nothing": b"",
    "x&<y>[z]": b"four",
    "d/e/f/deep": b"five",
    "d-e/f": b"six",
    "d.txt": b"seven",
    "_SUCCESS": b"",
    "large": LARGE,
}


@pytest.fixture
def mirror(cloud: CloudServer, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    reach(cloud, monkeypatch)
    made = Mirror(cloud, cloud.make_bucket(), tmp_path / "out")
    made.put_all(TREE)
    return made


def reach(server: CloudServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)


@BOTH
def test_a_tree_is_copied_and_then_only_what_differs(mirror: Mirror) -> None:
    mirror.put_all({"marked/": b""})
    job = mirror.write_job()
    assert f"{len(TREE)} new files" in run_job(job)
    assert mirror.copied() == Counter(TREE.items())
    assert "nothing differs" in run_job(job)

    kept = (mirror.out / "docs/large").stat()
    mirror.put_all({"a b": b"changed", "d/new": b"new"})
    mirror.server.remove(mirror.bucket, "in/docs/nothing")
    (planned,) = ask("plan", job)
    changes = {each["path"]: each["action"] for each in planned["changes"]}
    assert changes == {"a b": "replace", "d/new": "create", "nothing": "remove"}
    run_job(job)
    changed = {**TREE, "a b": b"changed", "d/new": b"new"}
    del changed["nothing"]
    assert mirror.copied() == Counter(changed.items())
    assert (mirror.out / "docs/large").stat().st_ino == kept.st_ino
    assert "nothing differs" in run_job(mirror.write_job(options="verify: reread, defaults: {same: checksum},"))


@BOTH
@pytest.mark.rotating
def test_a_tree_goes_to_a_bucket(mirror: Mirror, versitygw: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in versitygw.environment.items():
        monkeypatch.setenv(name, value)
    bucket = versitygw.make_bucket()
    job = mirror.write_job(destination=f"s3://{bucket}/out")
    run_job(job)
    files, top = versitygw.open(), f"/{bucket}/out/docs/"
    found = Counter[tuple[str, bytes]]()
    for each in files.list_objects(top.rstrip("/")):
        with files.open_input(each.path) as stream:
            found[each.path.removeprefix(top), stream.read()] += 1
    assert found == Counter(TREE.items())
    assert "nothing differs" in run_job(job)


# --- what fails meanwhile


@BOTH
@pytest.mark.rotating
@pytest.mark.parametrize("content", [LARGE[::-1], LARGE[:1_000], None], ids=["rewritten", "shorter", "gone"])
def test_an_object_that_changes_while_it_is_read_fails_and_nothing_is_published(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    def change() -> None:
        if content is None:
            mirror.server.remove(mirror.bucket, "in/docs/large")
        else:
            mirror.put_all({"large": content})

    with cutting_proxy(mirror.server.address[1]) as proxy:
        proxy.at_bytes, proxy.call = 4 << 20, change
        reach(mirror.server.at(proxy.port), monkeypatch)
        output = fail_job(mirror.write_job(options="retry: {task_tries_max: 1},"))
    assert "docs/large is another version now" in output or "docs/large is gone" in output
    assert mirror.copied() == Counter()
    reach(mirror.server, monkeypatch)
    run_job(mirror.write_job())
    left = {**TREE, "large": content}
    assert mirror.copied() == Counter((name, each) for name, each in left.items() if each is not None)


@BOTH
@pytest.mark.rotating
def test_a_connection_that_is_cut_in_an_object_is_opened_again(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    with cutting_proxy(mirror.server.address[1], cut_after=5 << 20) as proxy:
        proxy.cuts = 2
        reach(mirror.server.at(proxy.port), monkeypatch)
        run_job(mirror.write_job())
        assert not proxy.cuts
    assert mirror.copied() == Counter(TREE.items())


@BOTH
@pytest.mark.rotating
def test_a_store_that_is_busy_in_the_middle_of_an_object_is_asked_again(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [StoreFault.BUSY, StoreFault.LOST]

    def choose(request: Message) -> StoreFault | None:
        return left.pop() if left and b"bytes=8388608-" in request.head else None

    with faulty_store(mirror.server.address) as proxy:
        proxy.choose = choose
        reach(mirror.server.at(int(proxy.endpoint_url.rpartition(":")[2])), monkeypatch)
        run_job(mirror.write_job())
    assert not left
    assert mirror.copied() == Counter(TREE.items())


@BOTH
@pytest.mark.rotating
def test_no_secret_is_kept_or_said(mirror: Mirror, monkeypatch: pytest.MonkeyPatch, database_url: str) -> None:
    with cutting_proxy(mirror.server.address[1], cut_after=1 << 20) as proxy:
        reach(mirror.server.at(proxy.port), monkeypatch)
        said = fail_job(mirror.write_job(options="retry: {task_tries_max: 1},"))
    assert "can't read" in said
    reach(mirror.server, monkeypatch)
    said += run_job(mirror.write_job())
    assert mirror.server.secret not in said
    assert mirror.server.secret not in read_database(database_url)
    kept = [path for path in mirror.out.parent.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in kept if mirror.server.secret.encode() in path.read_bytes()]


def read_database(url: str) -> str:
    engine = create_engine(url)
    try:
        names = inspect(engine).get_table_names("gobblin")
        assert "commit_sequence" in names
        with engine.connect() as connection:
            found = [connection.execute(text(f'SELECT t::text FROM gobblin."{name}" t')).scalars() for name in names]
            return "\n".join(row for rows in found for row in rows)
    finally:
        engine.dispose()
