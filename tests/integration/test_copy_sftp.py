"""Copies whose source is an SFTP server, by the command line: whole trees, changes, cuts, refusals, secrets."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text

from gobblin_assets.jobs.copy.copyable import CopyItem, PlannedFile
from gobblin_assets.jobs.copy.transfer.local import READY_FILES_MIN, LocalTransfer
from gobblin_assets.jobs.copy.transfer.transfer_port import FileResult
from tests.support.command_lake import ask, fail_job, run_job
from tests.support.copy_lake import Look, look_at
from tests.support.copying import ALL_OF_TREE, copying_processes, divide, order_of, staged
from tests.support.cutting_proxy import cutting_proxy
from tests.support.s3_servers import S3Server
from tests.support.sftp_servers import PASSWORD, SshServer
from tests.support.shares import cross

pytestmark = pytest.mark.turns(of=8)

S_NS = 1_000_000_000
LARGE_BYTES = 24 << 20


@dataclass(frozen=True)
class Mirror:
    """``root``: on the server, with the dataset ``docs``. ``out``: the destination."""

    server: SshServer
    root: Path
    out: Path

    @property
    def docs(self) -> Path:
        return self.root / "docs"

    def write_job(self, *, port: int | None = None, options: str = "", destination: str = "") -> str:
        job = self.out.with_name("mirror.yaml")
        job.write_text(
            f"{{job: mirror, kind: distcp, source: '{self.server.uri(self.root, port)}', "
            f"destination: '{destination or self.out}', {options} datasets: [{{urn: docs, deletes: ours}}]}}",
            encoding="utf-8",
        )
        return str(job)

    def make_tree(self) -> None:
        contents = {
            "a b": b"one",
            "\u00e4\U0001f40d": b"two",
            "100% %41+#": b"three",
            "new\nline": b"four",
            "nothing": b"",
            "x?*[y]{z}": b"five",
            "d/e/f/g/h/deep": b"six",
            "large": os.urandom(1 << 20) * (LARGE_BYTES >> 20),
        }
        for number, (name, content) in enumerate(contents.items()):
            place = self.docs / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
            os.utime(place, ns=(0, (1_700_000_000 + number) * S_NS + 123_456_789))
        (self.docs / "a b").chmod(0o604)
        (self.docs / "empty").mkdir()

    def expected(self) -> Look:
        """The tree, with its times in whole seconds. Owners have the right to write in directories."""
        found = look_at(self.docs)
        return {
            name: (each[0], each[1] // S_NS * S_NS, each[2]) if len(each) > 1 else each for name, each in found.items()
        }

    def copied(self) -> Look:
        return look_at(self.out / "docs")


@pytest.fixture
def mirror(sftp_server: SshServer, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    for name, value in sftp_server.environment.items():
        monkeypatch.setenv(name, value)
    made = Mirror(sftp_server, sftp_server.make_root(), tmp_path / "out")
    made.docs.mkdir()
    return made


@pytest.mark.rotating(of=3)
@pytest.mark.core
@pytest.mark.parametrize(
    ("options", "sftp_server"),
    cross(("", "verify: reread, defaults: {same: checksum},"), ("openssh", "python_sftp")),
    indirect=["sftp_server"],
)
def test_a_tree_is_copied_and_then_only_what_differs(mirror: Mirror, options: str) -> None:
    mirror.make_tree()
    job = mirror.write_job(options=options)
    assert "8 new files" in run_job(job)
    assert mirror.copied() == mirror.expected()
    assert "nothing differs" in run_job(job)

    (mirror.docs / "nothing").unlink()
    (mirror.docs / "a b").write_bytes(b"changed")
    (mirror.docs / "d/new").write_bytes(b"new")
    kept = (mirror.out / "docs/large").stat().st_ino
    (planned,) = ask("plan", job)
    changes = {each["path"]: each["action"] for each in planned["changes"]}
    assert changes == {"a b": "replace", "d/new": "create", "nothing": "remove"}
    run_job(job)
    assert mirror.copied() == mirror.expected()
    assert (mirror.out / "docs/large").stat().st_ino == kept
    assert "nothing differs" in run_job(job)


@pytest.mark.parametrize("sftp_server", ["openssh"], indirect=True)
@pytest.mark.parametrize("options", ["", "verify: reread, defaults: {same: checksum},"])
def test_a_file_that_says_that_it_is_empty_and_has_bytes_is_not_published(mirror: Mirror, options: str) -> None:
    job = Path(mirror.write_job(options=options))
    source = mirror.server.uri(Path("/proc/sys/kernel"))
    job.write_text(
        job.read_text(encoding="utf-8").replace(mirror.server.uri(mirror.root), source).replace("docs", "pty"),
        encoding="utf-8",
    )

    assert "says 0 bytes, and has more" in fail_job(str(job))

    assert look_at(mirror.out / "pty") == {}


@pytest.mark.thorough
def test_many_small_files_are_copied_by_processes(mirror: Mirror, tmp_path: Path) -> None:
    """Each of them logs in by itself, as its environment says."""
    for number in range(READY_FILES_MIN):
        (mirror.docs / f"{number}").write_bytes(b"%d" % number)
    tree, docs = mirror.server.tree(), str(mirror.docs)
    files = [PlannedFile.of(each.path, each, ALL_OF_TREE.attributes_of(each)) for each in tree.list_tree(docs)]
    items = [CopyItem(number, each.path, (each,)) for number, each in enumerate(files, start=1)]
    order = order_of(mirror.docs, tmp_path / "attempt", divide(items, 8))
    found: dict[str, FileResult] = {}
    with LocalTransfer() as transfer:
        transfer.prepare(order.workers)
        for batch in transfer.copy(replace(order, source_root=tree.to_uri(docs))):
            found |= {each.path: each for each in batch}
        assert len(copying_processes(os.getpid())) == order.workers
    assert not [each.failure for each in found.values() if each.failure is not None]
    copied = {name: staged(order, each).read_bytes() for name, each in found.items()}
    assert copied == {path.name: path.read_bytes() for path in mirror.docs.iterdir()}


def test_a_tree_goes_to_a_bucket(mirror: Mirror, versitygw: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in versitygw.environment.items():
        monkeypatch.setenv(name, value)
    mirror.make_tree()
    bucket = versitygw.make_bucket()
    job = mirror.write_job(destination=f"s3://{bucket}/out")
    run_job(job)
    files, found = versitygw.open(), {}
    for each in files.list_objects(f"/{bucket}/out/docs"):
        found[each.path.removeprefix(f"/{bucket}/out/docs/")] = each.size_bytes
    assert found == {name: len(each[2]) for name, each in mirror.expected().items() if len(each) > 1}
    assert "nothing differs" in run_job(job)


def test_owners_are_kept_by_number(mirror: Mirror) -> None:
    (mirror.docs / "a").write_bytes(b"a")
    output = run_job(mirror.write_job(options="defaults: {preserve: ugptx},"))
    assert "preserve: x have no effect, since the source has no such attributes" in output
    found, origin = (mirror.out / "docs/a").stat(), (mirror.docs / "a").stat()
    assert (found.st_uid, found.st_gid) == (origin.st_uid, origin.st_gid)


# --- what changes meanwhile


def shrink(path: Path) -> None:
    os.truncate(path, 1000)


def rewrite(path: Path) -> None:
    with path.open("r+b") as stream:
        stream.seek(LARGE_BYTES - 1)
        stream.write(b"!")


@pytest.mark.parametrize("change", [shrink, rewrite, Path.unlink])
def test_a_file_that_changes_while_it_is_read_fails_and_nothing_is_published(
    mirror: Mirror, change: Callable[[Path], None]
) -> None:
    mirror.make_tree()
    with cutting_proxy(mirror.server.port) as proxy:
        proxy.at_bytes, proxy.call = 4 << 20, lambda: change(mirror.docs / "large")
        output = fail_job(mirror.write_job(port=proxy.port, options="retry: {task_tries_max: 1},"))
    assert "large changed while it was read" in output or "large is gone" in output
    assert mirror.copied() == {}
    job = mirror.write_job()
    run_job(job)
    assert mirror.copied() == mirror.expected()


def test_a_connection_that_is_cut_in_a_file_is_opened_again(mirror: Mirror) -> None:
    mirror.make_tree()
    with cutting_proxy(mirror.server.port, cut_after=5 << 20) as proxy:
        proxy.cuts = 2
        run_job(mirror.write_job(port=proxy.port))
        assert proxy.connections > 2
    assert mirror.copied() == mirror.expected()


def test_a_connection_that_is_always_cut_fails_and_the_next_run_finishes(mirror: Mirror) -> None:
    mirror.make_tree()
    with cutting_proxy(mirror.server.port, cut_after=1 << 20) as proxy:
        job = mirror.write_job(port=proxy.port)
        assert "was lost 3 times" in fail_job(job)
        assert mirror.copied() == {}
        proxy.cut_after = None
        run_job(job)
    assert mirror.copied() == mirror.expected()


# --- refusals


def test_links_and_special_files_are_as_the_job_says(mirror: Mirror) -> None:
    (mirror.docs / "file").write_bytes(b"x")
    (mirror.docs / "link").symlink_to("file")
    assert "'link' is a link in the source" in fail_job(mirror.write_job())
    assert "1 link or special file of the source left out" in run_job(
        mirror.write_job(options="defaults: {links: skip},")
    )
    assert mirror.copied().keys() == {"file"}
    run_job(mirror.write_job(options="defaults: {links: follow},"))
    assert (mirror.out / "docs/link").read_bytes() == b"x"
    assert not (mirror.out / "docs/link").is_symlink()
    os.mkfifo(mirror.docs / "pipe")
    assert "'pipe' is a special file in the source" in fail_job(mirror.write_job(options="defaults: {links: follow},"))


def test_a_dataset_behind_a_link(mirror: Mirror) -> None:
    outside, inside = mirror.server.make_root(), mirror.root / "inside"
    inside.mkdir()
    (inside / "file").write_bytes(b"x")
    (outside / "file").write_bytes(b"secret")
    mirror.docs.rmdir()
    mirror.docs.symlink_to(outside)
    assert "is a link, on the way to what is copied" in fail_job(mirror.write_job())
    follow = mirror.write_job(options="defaults: {links: follow},")
    assert "is not below the source" in fail_job(follow)
    mirror.docs.unlink()
    mirror.docs.symlink_to("inside")
    run_job(follow)
    assert (mirror.out / "docs/file").read_bytes() == b"x"


def test_what_can_not_be_read_is_named_and_nothing_is_published(mirror: Mirror) -> None:
    mirror.make_tree()
    (mirror.docs / "d/e").chmod(0)
    output = fail_job(mirror.write_job())
    assert "docs/d/e: Permission denied" in output
    (mirror.docs / "d/e").chmod(0o755)
    (mirror.docs / "nothing").chmod(0)
    assert "docs/nothing: Permission denied" in fail_job(mirror.write_job())
    assert mirror.copied() == {}
    (mirror.docs / "nothing").chmod(0o644)
    run_job(mirror.write_job())
    for path in mirror.docs.iterdir():
        path.rename(mirror.root / path.name)
    mirror.docs.rmdir()
    assert "docs is missing" in fail_job(mirror.write_job())
    assert len(mirror.copied()) > len("docs"), "a missing root removed what was copied"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("defaults: {converters: [gunzip]},", "as they are"),
        ("defaults: {skip_unchanged_directories: true},", "too coarse"),
        ("transfer: spark,", "transfer"),
    ],
)
def test_options_for_mounted_file_systems_are_refused(mirror: Mirror, options: str, said: str) -> None:
    assert said in fail_job(mirror.write_job(options=options))


@pytest.mark.core
def test_another_servers_key_and_a_wrong_password_are_refused_and_no_secret_is_kept(
    mirror: Mirror, python_sftp: SshServer, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    there = Mirror(python_sftp, python_sftp.make_root(), mirror.out)
    there.docs.mkdir()
    (there.docs / "file").write_bytes(b"x")
    monkeypatch.setenv("GOBBLIN_SFTP_KEY_FILE", "")
    monkeypatch.setenv("GOBBLIN_SFTP_PASSWORD", PASSWORD)
    said = fail_job(there.write_job())
    assert "GOBBLIN_SFTP_KNOWN_HOSTS" in said
    assert "ssh-keygen -R" in said
    monkeypatch.setenv("GOBBLIN_SFTP_KNOWN_HOSTS", python_sftp.settings.known_hosts)
    monkeypatch.setenv("GOBBLIN_SFTP_PASSWORD", f"not {PASSWORD}")
    said += fail_job(there.write_job())
    assert "does not let the user" in said
    assert there.copied() == {}
    monkeypatch.setenv("GOBBLIN_SFTP_PASSWORD", PASSWORD)
    said += run_job(there.write_job())
    assert there.copied().keys() == {"file"}

    assert PASSWORD not in said
    assert PASSWORD not in read_database(database_url)
    kept = [path for path in mirror.out.parent.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in kept if PASSWORD.encode() in path.read_bytes()]


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


def test_a_new_file_has_the_mode_of_its_origin(mirror: Mirror) -> None:
    (mirror.docs / "program").write_bytes(b"#!")
    (mirror.docs / "program").chmod(0o755)
    run_job(mirror.write_job())
    assert stat.S_IMODE((mirror.out / "docs/program").stat().st_mode) == 0o755
