"""Brings what servers of the tests are made of, once, before the tests begin.

On a machine that has nothing cached, Go builds versitygw and fake-gcs-server for minutes while the tests use the
processors, Maven brings Hadoop, npm Azurite, apt an sshd and an nginx, and playwright or apt a Chromium;
a test that waits for that would reach its timeout. The many JVMs of the tests start sooner with an archive of Spark's
classes, and in a new clone the tests are compiled, which each worker would do by itself. What can't be brought here is
said by the tests that need it.
"""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from demo.go_programs import build_go_program
from demo.kafka.jars import resolve_jars
from demo.s3.gateway import build_versitygw
from demo.service.balancer import find_nginx
from gobblin_assets.spark.class_archive import make_archive
from tests.support import mysql
from tests.support.azurite import install_azurite
from tests.support.chromium import install_chromium
from tests.support.cloud_servers import FAKE_GCS, FAKE_GCS_VERSION
from tests.support.hdfs_server import COORDINATES
from tests.support.processor_time import ROOT
from tests.support.sftp_servers import find_sshd


def main() -> None:
    parts = (
        _build_by_go,
        lambda: resolve_jars("hdfs", COORDINATES),
        lambda: resolve_jars("mysql-server", [mysql.COORDINATE]),
        find_sshd,
        find_nginx,
        install_azurite,
        install_chromium,
        lambda: make_archive(print),
        _compile_tests,
    )
    with ThreadPoolExecutor(len(parts)) as threads:
        list(threads.map(_bring, parts))


def _build_by_go() -> None:
    """One after the other: Go uses all processors for each."""
    _bring(build_versitygw)
    _bring(lambda: build_go_program(FAKE_GCS, FAKE_GCS_VERSION))


def _compile_tests() -> None:
    """With pytest's own assertions, as only pytest does."""
    if not list(ROOT.glob("tests/unit/__pycache__/*-pytest-*.pyc")):
        command = [sys.executable, "-m", "pytest", "--quiet", "--collect-only", "-p", "no:xdist", "tests"]
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


def _bring(make: Callable[[], object]) -> None:
    try:
        make()
    except Exception as error:  # noqa: BLE001  the tests say it again, by name
        sys.stderr.write(f"not ready for the tests: {error}\n")


if __name__ == "__main__":
    main()
