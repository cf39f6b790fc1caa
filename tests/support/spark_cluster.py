"""A standalone cluster of Spark: a master, and workers that may have a mount of their own at a directory."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyspark

from tests.support.spark import wait_until

HOST: Final = "127.0.0.1"
SMALL_EXECUTORS: Final = {"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2"}

_SPARK_HOME: Final = Path(pyspark.__file__).parent
_DEPLOY: Final = "org.apache.spark.deploy"
_MASTER_STARTED: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_HIDDEN: Final = 'mount -t tmpfs none "$0" && exec "$@"'


@dataclass
class SparkCluster:
    """``url``: of the master."""

    folder: Path
    url: str = ""
    _processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def start_master(self) -> None:
        self._start("master", ["master.Master", "--host", HOST, "--port", "0", "--webui-port", "0"])
        log = self.folder / "master.log"
        wait_until(lambda: _MASTER_STARTED.search(log.read_text()) is not None, "the master listens")
        found = _MASTER_STARTED.search(log.read_text())
        assert found is not None
        self.url = found[1]

    def start_worker(
        self,
        name: str = "worker",
        *,
        hidden: Path | None = None,
        cores: int = 2,
        variables: Mapping[str, str | None] | None = None,
    ) -> int:
        """The process id of a worker whose executors find an empty directory at ``hidden``.

        ``variables``: of its environment; None takes one away.
        """
        arguments = ["--host", HOST, "--cores", str(cores), "--memory", "1g", "--webui-port", "0", self.url]
        self._start(name, ["worker.Worker", *arguments], hidden, variables or {})
        wait_until(
            lambda: "Successfully registered with master" in (self.folder / f"{name}.log").read_text(), "it registered"
        )
        return self._processes[name].pid

    def runs(self, name: str) -> bool:
        return name in self._processes

    def stop(self, name: str) -> None:
        process = self._processes.pop(name)
        process.terminate()
        process.wait()

    def stop_all(self) -> None:
        for name in reversed(list(self._processes)):
            self.stop(name)

    def _start(
        self,
        name: str,
        arguments: list[str],
        hidden: Path | None = None,
        variables: Mapping[str, str | None] | None = None,
    ) -> None:
        environment: dict[str, str | None] = {
            **os.environ,
            "SPARK_HOME": str(_SPARK_HOME),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_WORKER_DIR": str(self.folder / "work"),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            **(variables or {}),
        }
        command = [f"{_SPARK_HOME}/bin/spark-class", f"{_DEPLOY}.{arguments[0]}", *arguments[1:]]
        if hidden is not None:
            command = [*hiding(hidden), *command]
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command,
                env={key: value for key, value in environment.items() if value is not None},
                stdout=log,
                stderr=subprocess.STDOUT,
            )


def hiding(directory: Path) -> list[str]:
    """What a command begins with that finds the directory empty."""
    return ["unshare", "--mount", "sh", "-c", _HIDDEN, str(directory)]


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """A master without workers."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = SparkCluster(folder)
    try:
        cluster.start_master()
        yield cluster
    finally:
        cluster.stop_all()
