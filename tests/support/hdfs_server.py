"""A real HDFS for tests: Hadoop's own small cluster, with a NameNode and DataNodes in one Java process.

Its jars come by Maven coordinates, once, into the user's cache folder. A guard kills the process when the one that
started it ends.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from demo.kafka.jars import resolve_jars
from demo.server_process import PORT_TRIES_MAX, find_port, read_end, run_guarded
from gobblin_assets.fs.hdfs.file_system import HdfsFileSystem
from gobblin_assets.fs.hdfs.hdfs_settings import PREFIX, HdfsSettings
from tests.support.spark import wait_until

COORDINATES: Final = (
    "org.apache.hadoop:hadoop-client-minicluster:3.5.0",
    "org.junit.jupiter:junit-jupiter-api:5.13.4",
    "org.mockito:mockito-core:5.18.0",
)
USER: Final = "tester"
GATEWAY: Final = "gateway"
"""A user who may act for any other."""

BLOCK_BYTES: Final = 1 << 20
"""Small, so that a test's files have several blocks."""

PAGE_ENTRIES: Final = 7
"""Of a listing; a NameNode's own default is 1,000."""

_START_S_MAX: Final = 120.0


@dataclass(frozen=True, slots=True)
class HdfsServer:
    """``address``: of the NameNode, as in URIs. ``made``: counts directories."""

    address: str
    http_address: str
    made: list[str] = field(default_factory=list)

    def settings(self, user: str = USER) -> HdfsSettings:
        return HdfsSettings(user=user, web_url=f"http://{self.http_address}")

    @property
    def environment(self) -> Mapping[str, str]:
        return {f"{PREFIX}USER": USER, f"{PREFIX}WEB_URL": f"http://{self.http_address}"}

    def open(self, umask: int | None = None, user: str = USER) -> HdfsFileSystem:
        return HdfsFileSystem(self.address, self.settings(user), umask)

    def make_root(self) -> str:
        """The path of a new, empty directory."""
        path = f"/tests/{os.getpid()}-{len(self.made)}"
        self.made.append(path)
        self.open().make_directories(path)
        return path

    def uri(self, path: str) -> str:
        return f"hdfs://{self.address}{path}"

    def list_datanodes(self) -> set[str]:
        """The addresses of those that the NameNode takes for living: one that was killed is among them for minutes."""
        url = f"http://{self.http_address}/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = json.loads(json.load(answer)["beans"][0]["LiveNodes"])
        return {each["xferaddr"] for each in found.values()}


@pytest.fixture(scope="session")
def hdfs_server() -> Iterator[HdfsServer]:
    with run_hdfs() as server:
        yield server


@contextmanager
def run_hdfs(*, datanodes: int = 1) -> Iterator[HdfsServer]:
    folder = Path(tempfile.mkdtemp(prefix="gobblin-hdfs-"))
    try:
        with _serving(folder, datanodes) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _serving(folder: Path, datanodes: int) -> Iterator[HdfsServer]:
    for tries in range(1, PORT_TRIES_MAX + 1):
        place, ports = folder / f"try-{tries}", (find_port(), find_port())
        place.mkdir()
        command, log = _write_command(place, *ports, datanodes), place / "log"
        # The cluster's own user may do anything.
        with run_guarded(command, log, {"HADOOP_USER_NAME": USER}, cwd=place) as process:
            if _wait(process, place / "details.json"):
                yield HdfsServer(f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}")
                return
            assert tries < PORT_TRIES_MAX, f"HDFS did not start:\n{read_end(log)}"


def _write_command(place: Path, port: int, http_port: int, datanodes: int) -> list[str]:
    settings = {
        # A NameNode hears of a block a moment after its writer does; a writer that asks too early waits 0.4 s.
        "dfs.namenode.file.close.num-committed-allowed": "1",
        "dfs.namenode.fs-limits.min-block-size": "4096",
        "dfs.ls.limit": str(PAGE_ENTRIES),
        "dfs.blocksize": str(BLOCK_BYTES),
        "dfs.replication": "1",
        "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
        f"hadoop.proxyuser.{GATEWAY}.hosts": "*",
        f"hadoop.proxyuser.{GATEWAY}.users": "*",
    }
    return [
        *_java(place, "org.apache.hadoop.test.MiniDFSClusterManager"),
        *("-format", "-datanodes", str(datanodes), "-nnport", str(port), "-httpport", str(http_port)),
        *("-writeDetails", str(place / "details.json")),
        *(word for name, value in settings.items() for word in ("-D", f"{name}={value}")),
    ]


def _java(place: Path, main_class: str) -> list[str]:
    options = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
    jars = resolve_jars("hdfs", COORDINATES)
    return ["java", *options, f"-Dtest.build.data={place}", "-cp", f"{jars}/*", main_class]


@contextmanager
def run_datanode(server: HdfsServer, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A DataNode in a process of its own, whose blocks are below ``folder``. The NameNode knows it on return."""
    settings = {
        "fs.defaultFS": server.uri(""),
        "dfs.datanode.data.dir": str(folder / "blocks"),
        **{f"dfs.datanode.{name}": "127.0.0.1:0" for name in ("address", "http.address", "ipc.address")},
    }
    known = server.list_datanodes()
    command = [
        *_java(folder, "org.apache.hadoop.hdfs.server.datanode.DataNode"),
        *(word for name, value in settings.items() for word in ("-D", f"{name}={value}")),
    ]
    log = folder / "datanode.log"
    with run_guarded(command, log, {"HADOOP_USER_NAME": USER}, cwd=folder) as process:
        wait_until(lambda: bool(server.list_datanodes() - known) or process.poll() is not None, "a DataNode")
        assert process.poll() is None, read_end(log)
        yield process


def _wait(process: "subprocess.Popen[bytes]", details: Path) -> bool:
    """The details are written when the cluster takes requests."""
    end = time.monotonic() + _START_S_MAX
    while time.monotonic() < end and process.poll() is None:
        if details.exists() and details.read_text().endswith("}"):
            return True
        time.sleep(0.05)
    return False
