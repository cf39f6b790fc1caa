"""Copies between directories and HDFS, by the command line; and a DataNode that dies in the middle of a copy."""

import os
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hdfs_native import Client, WriteOptions

from gobblin_assets.destinations.claims import WORK_NAME, work_root_of, write_claim
from gobblin_assets.errors import ErrorFamily, RejectedError
from gobblin_assets.fs.hdfs.hdfs_settings import act_as
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.urn import JobName
from tests.support import hdfs_server as servers
from tests.support.command_lake import ask, fail_job, invoke, run_job
from tests.support.copy_lake import look_at
from tests.support.hdfs_lake import HdfsLake, make_hdfs_lake
from tests.support.hdfs_place import HdfsClient
from tests.support.hdfs_server import BLOCK_BYTES, HdfsServer, run_datanode, run_hdfs
from tests.support.spark import wait_until

MS_NS = 1_000_000
LARGE_BYTES = 300 << 20
ONE_COPY = ("GOBBLIN_HDFS_REPLICATION", "1")


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    for name in ("HADOOP_USER_NAME", "GOBBLIN_HDFS_USER", "GOBBLIN_HDFS_WEB_URL", ONE_COPY[0]):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # put back after the test


def write_job(folder: Path, name: str, source: str, destination: str, options: str = "") -> str:
    path = folder / f"{name}.yaml"
    path.write_text(
        f"{{job: {name}, kind: distcp, source: '{source}', destination: '{destination}', {options} "
        "datasets: [{urn: docs, deletes: ours}]}",
        encoding="utf-8",
    )
    return str(path)


@pytest.mark.rotating
@pytest.mark.parametrize("options", ["", "verify: reread, defaults: {same: checksum},"])
@pytest.mark.turns("copies on HDFS")
def test_a_tree_goes_to_hdfs_over_it_and_back(hdfs_server: HdfsServer, tmp_path: Path, options: str) -> None:
    os.environ.update(hdfs_server.environment)
    first, second = (hdfs_server.uri(hdfs_server.make_root()) for _ in range(2))
    source = tmp_path / "source"
    (source / "docs/d/empty").mkdir(parents=True)
    contents = {
        "a": b"one",
        "large": os.urandom(2 * BLOCK_BYTES + 1),
        "d/\u00e4 %41+#": b"two",
        "d/nothing": b"",
        "old": b"x",
    }
    for number, (name, content) in enumerate(contents.items()):
        (source / "docs" / name).write_bytes(content)
        os.utime(source / "docs" / name, ns=(0, (1_700_000_000_000 + number) * MS_NS))
    jobs = [
        write_job(tmp_path, "there", str(source), first, options),
        write_job(tmp_path, "over", first, second, options),
        write_job(tmp_path, "back", second, str(tmp_path / "back"), options),
    ]
    for job in jobs:
        run_job(job)
    assert look_at(tmp_path / "back/docs") == look_at(source / "docs")

    (source / "docs/old").unlink()
    (source / "docs/a").write_bytes(b"changed")
    os.utime(source / "docs/a", ns=(0, 1_800_000_000_000 * MS_NS))
    for job in jobs:
        assert "0 new files, 1 replaced, 1 removed" in run_job(job)
    assert look_at(tmp_path / "back/docs") == look_at(source / "docs")
    for job in jobs:
        assert "nothing differs" in run_job(job)
        assert invoke("verify", job).exit_code == 0

    kept = ask("trash", "list", jobs[0])
    assert sorted((each["path"].rpartition("/")[2], each["was_removed"]) for each in kept) == [
        ("a", False),
        ("old", True),
    ]
    again = tmp_path / "again"
    restored = invoke("trash", "restore", jobs[0], "--dataset", "docs", "--path", "a", "--to", str(again))
    assert restored.exit_code == 0, restored.output
    assert (again.read_bytes(), again.stat().st_mtime_ns) == (b"one", 1_700_000_000_000 * MS_NS)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.turns("copies on HDFS")
def test_a_tree_inside_is_found_whatever_a_run_chooses(
    hdfs_server: HdfsServer, database_url: str, tmp_path: Path, *, is_first: bool
) -> None:
    """At first by a search of the destination, and later on the way to each name."""
    lake = make_hdfs_lake(hdfs_server, database_url, tmp_path)
    lake.write("mine/logs/app/today.log", 3)
    inner = replace(
        lake, options={"job": "inner", "destination": f"{lake.root}/mine", "datasets": [{"urn": "logs/app"}]}
    )
    outer = replace(lake, options={"datasets": [], "defaults": {"exclude": [f"{WORK_NAME}/"], "deletes": "all"}})
    worlds = [each.open_world() for each in (inner, outer, lake)]
    if is_first:
        assert not worlds[0].run().failed
    else:
        assert not worlds[2].run().failed
        files, root = open_file_system(f"{lake.root}/mine")
        files.make_directories(work_root_of(root))
        write_claim(files, root, JobName("inner"))
    originals = lake.look()

    try:
        said = [str(each.error) for each in worlds[1].run().failed]
    except RejectedError as error:
        said = [str(error)]

    assert len(said) == 1
    assert "lies inside" in said[0]
    assert lake.look() == originals
    if is_first:
        assert not worlds[0].run().failed
    for each in worlds:
        each.close()


def statuses(server: HdfsServer, root: str) -> dict[str, tuple[object, ...]]:
    """Owner, group, replication and block size of all that was published below a root."""
    fields = ("owner", "group", "replication", "blockSize")
    found = HdfsClient(server.http_address).walk(f"{root}/docs")
    return {path.removeprefix(f"{root}/docs/"): tuple(status[name] for name in fields) for path, status in found}


@pytest.mark.turns("what Spark meets", of=8)
def test_owners_replication_and_block_sizes_go_from_hdfs_to_hdfs(hdfs_server: HdfsServer, tmp_path: Path) -> None:
    os.environ.update(hdfs_server.environment)
    client, roots = HdfsClient(hdfs_server.http_address), [hdfs_server.make_root() for _ in range(3)]
    sizes = {"a": 4 << 10, "d/b": 64 << 10}
    for name, block_bytes in sizes.items():
        client.write(f"{roots[0]}/docs/{name}", os.urandom(150_000), blocksize=str(block_bytes), replication="2")
    client.ask("PUT", f"{roots[0]}/docs/e/f", "MKDIRS")
    for name, owner in {"a": "ann", "d": "bob", "d/b": "bob", "e/f": "ann"}.items():
        client.ask("PUT", f"{roots[0]}/docs/{name}", "SETOWNER", owner=owner, group="staff")
    uris = [hdfs_server.uri(root) for root in roots]

    run_job(write_job(tmp_path, "same", uris[0], uris[1], "defaults: {preserve: ptugrb, attributes: sync},"))
    chosen = "defaults: {preserve: ptr, replication: 3, block_bytes: 131072, attributes: sync},"
    run_job(write_job(tmp_path, "chosen", uris[0], uris[2], chosen))

    first, same, other = (statuses(hdfs_server, root) for root in roots)
    assert first["a"] == ("ann", "staff", 2, 4 << 10)
    assert same == first
    assert {other[name][2:] for name in sizes} == {(3, 131_072)}
    assert {found[0] for found in other.values()} == {servers.USER}
    client.ask("PUT", f"{roots[0]}/docs/a", "SETOWNER", owner="bob")
    client.ask("PUT", f"{roots[0]}/docs/d/b", "SETREPLICATION", replication="1")
    assert "2 replaced" in run_job(
        write_job(tmp_path, "same", uris[0], uris[1], "defaults: {preserve: ptugrb, attributes: sync},")
    )
    assert statuses(hdfs_server, roots[1]) == statuses(hdfs_server, roots[0])


@pytest.mark.turns("copies on HDFS")
def test_an_owner_that_a_user_may_not_give_is_said_by_file(hdfs_server: HdfsServer, tmp_path: Path) -> None:
    os.environ.update({**hdfs_server.environment, "GOBBLIN_HDFS_USER": "ann"})
    client, roots = HdfsClient(hdfs_server.http_address), [hdfs_server.make_root() for _ in range(2)]
    client.write(f"{roots[0]}/docs/a", b"content")
    for place in (roots[1], f"{roots[0]}/docs"):
        client.ask("PUT", place, "SETOWNER", owner="ann")
    job = write_job(tmp_path, "j", *map(hdfs_server.uri, roots), "defaults: {preserve: ptu},")
    failed = invoke("run", job, "--no-dagster")
    assert failed.exit_code == 1
    assert "can't give the owner tester to" in failed.output
    assert "take u and g out of preserve" in failed.output
    client.ask("PUT", f"{roots[0]}/docs/a", "SETOWNER", owner="ann")
    run_job(job)
    assert statuses(hdfs_server, roots[1])["a"][0] == "ann"


@pytest.fixture
def alone() -> Iterator[tuple[HdfsServer, Path]]:
    """A cluster without a DataNode, and a folder for one."""
    with run_hdfs(datanodes=0) as server, tempfile.TemporaryDirectory(prefix="gobblin-datanode-") as folder:
        yield server, Path(folder)


@pytest.mark.thorough
def test_a_datanode_that_dies_during_a_copy_fails_the_file_and_the_next_try_succeeds(
    alone: tuple[HdfsServer, Path], database_url: str, tmp_path: Path
) -> None:
    server, folder = alone
    # Without a DataNode at its start, this NameNode's own default is no copy at all.
    lake = replace(make_hdfs_lake(server, database_url, tmp_path), environment=(*server.environment.items(), ONE_COPY))
    with (lake.source / "albums/large.bin").open("wb") as large:
        large.truncate(LARGE_BYTES)
    os.utime(lake.source / "albums/large.bin", (1_700_000_000, 1_700_000_000))
    world = lake.open_world()
    with run_datanode(server, folder) as datanode:

        def kill() -> None:
            await_writing(lake)
            datanode.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        report = world.run(urns=["albums"])
        killer.join()
    assert [str(each.urn) for each in report.failed] == ["albums"]
    assert report.failed[0].error_family is ErrorFamily.RETRYABLE
    assert any("large.bin" in line for line in world.lines), world.lines
    assert not [name for name in lake.look() if name.startswith("albums/")], "a part of a file set was published"

    with run_datanode(server, folder):
        assert not world.run().failed
        world.check_copied()
    world.close()


def await_writing(lake: HdfsLake) -> None:
    """Until the large file has whole blocks, and lacks others."""
    client = HdfsClient(lake.http_address)

    def is_written() -> bool:
        found = [status["length"] for path, status in client.walk(lake.place) if "/.staging/" in path]
        assert LARGE_BYTES not in found, "the copy ended before the DataNode died"
        return any(length > BLOCK_BYTES for length in found)

    wait_until(is_written, "a part of the large file")


@pytest.mark.turns("copies on HDFS")
def test_a_file_that_somebody_still_writes_is_copied_once_it_is_closed(hdfs_server: HdfsServer, tmp_path: Path) -> None:
    """The NameNode says the length that was synced, and only whole blocks can be read."""
    os.environ.update(hdfs_server.environment)
    root = hdfs_server.make_root()
    act_as(hdfs_server.settings().effective_user)
    client = Client(f"hdfs://{hdfs_server.address}")
    writer = client.create(f"{root}/docs/growing", WriteOptions(create_parent=True))
    writer.write(b"some bytes")
    writer.hsync()
    job = write_job(tmp_path, "there", hdfs_server.uri(root), str(tmp_path / "out"))

    output = fail_job(job)

    assert "docs/growing says 10 bytes, and 0 can be read: it is still being written" in output
    assert look_at(tmp_path / "out/docs") == {}
    writer.close()
    run_job(job)
    assert (tmp_path / "out/docs/growing").read_bytes() == b"some bytes"
