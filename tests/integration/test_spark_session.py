import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from gobblin_assets.errors import ConflictError, RejectedError, RetryableError
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.rows.parquet_writer import write_parquet
from gobblin_assets.spark.cancellation import find_session_identity, open_cancellation
from gobblin_assets.spark.class_archive import make_archive
from gobblin_assets.spark.session import DRIVER_LOGS_KEPT, open_session
from gobblin_assets.spark.spark_settings import SparkSettings
from tests.support.spark import STRANGERS, in_child, slow_frame, wait_until

pytestmark = pytest.mark.turns(of=8)

FS = PosixFileSystem()


@pytest.mark.core
def test_session_and_jvm_are_in_utc(spark: SparkSession) -> None:
    row = spark.sql("SELECT current_timezone(), java_method('java.util.TimeZone', 'getDefault')").collect()[0]
    assert row[0] == "UTC"
    assert 'id="UTC"' in row[1]


def test_equal_settings_give_the_same_session_and_others_are_refused(
    spark: SparkSession, spark_settings: SparkSettings, tmp_path: Path
) -> None:
    assert open_session(spark_settings) is spark
    for other in (SparkSettings(tmp_path), SparkSettings(tmp_path, remote="sc://localhost:1/;token=hush")):
        with pytest.raises(RejectedError, match="this process") as refused:
            open_session(other)
        assert "hush" not in str(refused.value)


def test_a_capability_brings_its_driver(spark: SparkSession) -> None:
    nobody = spark.read.format("jdbc").options(
        url="jdbc:postgresql://127.0.0.1:1/none", driver="org.postgresql.Driver", dbtable="t"
    )
    with pytest.raises(Exception, match=r"org\.postgresql\.util\.PSQLException: Connection to 127\.0\.0\.1:1 refused"):
        nobody.load()


def _look_at_worker(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _batch in batches:
        yield pa.record_batch({"path": sys.path})


def test_workers_do_not_look_for_modules_in_jars(spark: SparkSession) -> None:
    listed = str(spark.conf.get("spark.jars"))
    assert "postgresql" in listed
    found = spark.range(1).mapInArrow(_look_at_worker, "path string").collect()
    # Spark's own classes are always there.
    assert [path for (path,) in found if path.endswith(".jar") and "spark-core" not in path] == []
    assert [path for path in sys.path if path.endswith(".jar")] == []


PROGRAM_OF_JARS = """
import sys
from pathlib import Path
from gobblin_assets.spark.session import open_session
from gobblin_assets.spark.spark_settings import SparkSettings
conf = {"spark.jars.ivy": sys.argv[1]}
settings = SparkSettings(Path(sys.argv[2]), master="local[1]", conf=conf, capabilities=("postgres", "avro", "kafka"))
print(open_session(settings).sql("SELECT current_timezone()").collect()[0][0])
"""

PROGRAM = """
import os
import sys
from pathlib import Path
from gobblin_assets.errors import GobblinError
from gobblin_assets.spark.session import open_session
from gobblin_assets.spark.spark_settings import SparkSettings
settings = SparkSettings(
    Path(sys.argv[1]), master="local[1]", conf={"spark.hadoop.my.password": "".join(["hu", "sh"])},
    capabilities=tuple(sys.argv[2:]), coordinates={"missing": "org.example:nowhere:0.0.1"},
)
try:
    spark = open_session(settings)
    derby = {"url": "jdbc:derby:memory:x;create=true", "driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"}
    spark.read.format("jdbc").options(**derby, dbtable="sysibm.sysdummy1").load().count()
    try:
        spark.sql("SELECT nothing")
    except Exception as error:
        print("rejected")
    spark.stop()
    spark = open_session(settings)
    print("again", spark.range(3).count(), spark.conf.get("spark.hadoop.my.password"))
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    print("archived", any(b"spark-classes-" in Path("/proc", pid, "maps").read_bytes() for pid in children))
    command_lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
    print("seen", any(b"".join([b"hu", b"sh"]) in line for line in command_lines))
except GobblinError as error:
    print(type(error).__name__, error)
"""


def run_program(
    folder: Path, *capabilities: str, variables: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    (folder / "empty").mkdir()
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder / "work ü"), *capabilities],
        capture_output=True,
        text=True,
        cwd=folder / "empty",
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **variables},
    )


def test_a_session_says_nothing_on_the_console_and_leaves_nothing_where_it_was_started(tmp_path: Path) -> None:
    make_archive(print)
    done = run_program(tmp_path, "postgres", variables=STRANGERS)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["rejected", "again 3 hush", "archived True", "seen False"]
    assert list((tmp_path / "empty").iterdir()) == []
    kept = {path.name for path in (tmp_path / "work ü").iterdir()}
    assert "derby.log" in kept
    assert any(name.startswith("driver-") for name in kept)


def test_a_coordinate_that_maven_does_not_have_is_one_clear_line(tmp_path: Path) -> None:
    done = run_program(tmp_path, "missing")
    assert done.stderr == ""
    assert done.stdout.startswith("RejectedError spark.capabilities: Maven has no org.example#nowhere;0.0.1")
    assert done.stdout.count("\n") == 1


def test_old_driver_logs_are_removed(tmp_path: Path) -> None:
    for number in range(DRIVER_LOGS_KEPT + 5):
        (tmp_path / f"driver-{number}.log").touch()
        os.utime(tmp_path / f"driver-{number}.log", (number, number))
    name, left = in_child(_open_without_java, tmp_path)
    assert name == "RejectedError"
    assert left == DRIVER_LOGS_KEPT - 1
    assert not (tmp_path / "driver-0.log").exists()


def _open_without_java(folder: Path) -> tuple[str, int]:
    os.environ["JAVA_HOME"] = str(folder)
    try:
        open_session(SparkSettings(folder))
    except RejectedError as error:
        return type(error).__name__, len(list(folder.glob("driver-*.log")))
    return "opened", 0


@pytest.mark.core
def test_a_cancelled_write_raises_and_is_never_complete(spark: SparkSession, tmp_path: Path) -> None:
    cancellation = open_cancellation(spark)
    raised: list[Exception] = []

    def write(tag: str, rows: int) -> None:
        try:
            with cancellation.tagged(tag):
                write_parquet(slow_frame(spark, rows), FS.to_uri(str(tmp_path / tag)))
        except (RetryableError, ConflictError, RejectedError) as error:
            raised.append(error)

    workers = [
        threading.Thread(target=write, args=("cancelled", 3_000)),
        threading.Thread(target=write, args=("kept", 20)),
    ]
    for worker in workers:
        worker.start()
    wait_until((tmp_path / "cancelled" / "_temporary").exists, "the write has begun")
    cancellation.cancel("cancelled")
    for worker in workers:
        worker.join()
    assert [type(error) for error in raised] == [RetryableError]
    assert not (tmp_path / "cancelled" / "_SUCCESS").exists()
    assert (tmp_path / "kept" / "_SUCCESS").exists()


def test_tags_end_with_their_block_and_hold_no_comma(spark: SparkSession) -> None:
    cancellation = open_cancellation(spark)
    with cancellation.tagged("one"):
        assert set(map(str, spark.sparkContext.getJobTags())) == {"one"}
    assert not set(map(str, spark.sparkContext.getJobTags()))
    for refused in (lambda: cancellation.cancel("a,b"), lambda: cancellation.tagged("").__enter__()):
        with pytest.raises(RejectedError, match="tag"):
            refused()


def test_a_classic_session_leaves_nothing_that_outlives_it(spark: SparkSession) -> None:
    assert find_session_identity(spark) is None


@pytest.mark.thorough
def test_sessions_that_start_together_on_a_new_machine_all_find_their_jars(tmp_path: Path) -> None:
    program = [sys.executable, "-c", PROGRAM_OF_JARS, str(tmp_path / "cache")]
    running = [
        subprocess.Popen([*program, str(tmp_path / f"work-{number}")], stdout=subprocess.PIPE, text=True)
        for number in range(3)
    ]
    assert [each.communicate(timeout=240)[0].strip() for each in running] == ["UTC"] * 3
