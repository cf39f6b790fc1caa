"""Brings what servers of the tests are made of, once, before the tests begin.

On a machine that has nothing cached, Go builds versitygw for minutes while the tests use the processors, and Maven
brings Hadoop, and apt an sshd; a test that waits for that would reach its timeout. The many JVMs of the tests start in
half of the time with an archive of Spark's classes. What can't be brought here is said by the tests that need it.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from demo.kafka.jars import resolve_jars
from demo.s3.gateway import build_versitygw
from gobblin_assets.spark.class_archive import make_archive
from tests.support.hdfs_server import COORDINATES
from tests.support.sftp_servers import find_sshd


def main() -> None:
    parts = (build_versitygw, lambda: resolve_jars("hdfs", COORDINATES), find_sshd, lambda: make_archive(print))
    with ThreadPoolExecutor(len(parts)) as threads:
        list(threads.map(_bring, parts))


def _bring(make: Callable[[], object]) -> None:
    try:
        make()
    except Exception as error:  # noqa: BLE001  the tests say it again, by name
        sys.stderr.write(f"not ready for the tests: {error}\n")


if __name__ == "__main__":
    main()
