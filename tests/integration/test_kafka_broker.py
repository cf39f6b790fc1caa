"""The broker that tests, demo and benchmarks run: it keeps its data, can be lost, and never outlives its starter."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from demo.kafka.broker import KafkaBroker, start_broker, start_cluster
from gobblin_assets.errors import RetryableError
from gobblin_assets.spark.processes import find_start_mark
from tests.support.kafka import COMPACTED, Record, compact, make_topic, produce, read_all
from tests.support.spark import wait_until

pytestmark = pytest.mark.turns(of=8)

_STARTER = """
import pathlib, sys, time
from demo.kafka.broker import start_broker
broker = start_broker(pathlib.Path(sys.argv[1]))
print(broker.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.thorough
def test_a_killed_broker_has_its_records_again_after_a_restart(tmp_path: Path) -> None:
    with start_broker(tmp_path) as broker:
        make_topic(broker.bootstrap, "kept")
        produce(broker.bootstrap, "kept", [b"a", b"b"])
        broker.kill()
        assert broker.pid is None
        broker.restart()
        broker.pause()
        broker.resume()
        assert [found.value for found in read_all(broker.bootstrap, "kept")] == [b"a", b"b"]


@pytest.mark.thorough
def test_of_three_brokers_one_can_be_lost(tmp_path: Path) -> None:
    with start_cluster(tmp_path, 3) as cluster:
        make_topic(cluster.bootstrap, "copied", replicas=[[1, 2], [2, 3], [3, 1]])
        cluster.get(1).kill()
        records = [Record(b"%d" % partition, partition=partition) for partition in range(3)]
        produce(cluster.bootstrap, "copied", records)
        assert [found.value for found in read_all(cluster.bootstrap, "copied")] == [b"0", b"1", b"2"]


def test_a_broker_does_not_outlive_a_killed_starter(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _STARTER, str(tmp_path)], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        mark = find_start_mark(pid)
        assert mark is not None
        os.kill(starter.pid, signal.SIGKILL)
    wait_until(lambda: find_start_mark(pid) != mark, "the broker ended")


def test_a_broker_that_can_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(RetryableError, match=r"log\.retention\.check\.interval\.ms"):
        start_broker(tmp_path, settings={"log.retention.check.interval.ms": "soon"})


def test_compaction_leaves_the_newest_record_of_each_key(kafka_broker: KafkaBroker, topic: Callable[..., str]) -> None:
    name = topic("compacted", settings=COMPACTED)
    produce(kafka_broker.bootstrap, name, [Record(b"%d" % i, key=b"k%d" % (i % 2)) for i in range(6)])
    left = compact(kafka_broker.bootstrap, name)
    assert [(found.offset, found.key, found.value) for found in left] == [(4, b"k0", b"4"), (5, b"k1", b"5")]
