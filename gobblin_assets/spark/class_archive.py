"""An archive of Spark's classes, as a JVM has them after a first query, so that the next JVM need not parse them again.

Java calls it class-data sharing. An archive belongs to one Java and one installation of Spark; a JVM that finds it
unsuitable says so in its log and goes on without it. It lies in the user's cache folder: whoever can write there could
have code of their own run by the user's JVMs, so a file of another owner is left alone.

Source: JDK Enhancement Proposal 350, dynamic archives.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from gobblin_assets.errors import RetryableError
from gobblin_assets.fs.posix_errors import families
from gobblin_assets.settings import cache_folder
from gobblin_assets.spark.java import check_java, find_java, without_addresses

MAKE_S_MAX: Final = 300.0
"""A JVM that writes an archive needs some 20 s of a processor; a loaded machine takes longer."""

_DRIVER_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOG_CHARACTERS_MAX: Final = 1_000


def with_archive(conf: Mapping[str, str]) -> dict[str, str]:
    """Configuration for a JVM that is about to start, with the archive where there is one."""
    archive = archive_path()
    if not _is_ours(archive) or "SharedArchiveFile" in conf.get(_DRIVER_OPTIONS, ""):
        return dict(conf)
    # A reason to leave the archive is a line of the JVM's own log, and no error.
    return {**conf, _DRIVER_OPTIONS: f'-Xshare:auto "-XX:SharedArchiveFile={archive}" {conf.get(_DRIVER_OPTIONS, "")}'}


def make_archive(say: Callable[[str], None]) -> Path:
    """The archive for the Java and the Spark of this process, made anew unless it is there.

    RejectedError without a usable Java; RetryableError where the JVM writes none.
    """
    archive = archive_path()
    if _is_ours(archive):
        return archive
    check_java()
    say(f"A JVM writes the archive of Spark's classes, once, to {archive}")
    with families("keep an archive of Spark's classes in", str(archive.parent)):
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="classes.", dir=archive.parent) as folder:
            made = Path(folder, "made.jsa")
            _run_sample(made)
            made.replace(archive)
    return archive


def archive_path() -> Path:
    """The path where the archive is, or would be. RejectedError without Java."""
    java = Path(find_java(os.environ)).resolve()
    spark = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    # A JVM leaves an archive of classes whose files were written anew, as by an installation at the same place.
    written = max((each.stat().st_mtime_ns for each in spark.glob("jars/*.jar")), default=0)
    facts = [str(java), str(java.stat().st_mtime_ns), str(spark), str(written), pyspark.__version__]
    mark = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    return cache_folder() / f"spark-classes-{mark}.jsa"


def _is_ours(archive: Path) -> bool:
    try:
        return archive.stat().st_uid == os.getuid()
    except OSError:
        return False


def _run_sample(made: Path) -> None:
    """Run the sample in a process of its own, which waits until its JVM has written the archive and ended."""
    work = made.with_name("work")
    command = [sys.executable, "-m", __name__, str(made), str(work)]
    try:
        ended = subprocess.run(  # noqa: S603  our own module
            command,
            capture_output=True,
            text=True,
            timeout=MAKE_S_MAX,
            check=False,
            cwd=made.parent,
            env=without_addresses(os.environ),
        )
        said = (ended.stdout + ended.stderr).strip()[-_LOG_CHARACTERS_MAX:]
    except subprocess.TimeoutExpired:
        said = f"not done after {MAKE_S_MAX:.0f} s"
    if not made.exists():
        raise RetryableError(f"the JVM wrote no archive of Spark's classes: {said}")


def _sample(made: Path, work: Path) -> None:
    """Load what most sessions load: a query, Parquet written and read, and the parts of a Connect server."""
    work.mkdir()
    options = f'-Duser.timezone=UTC "-Djava.io.tmpdir={work}" "-XX:ArchiveClassesAtExit={made}"'
    conf = {
        _DRIVER_OPTIONS: options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(work),
        "spark.sql.warehouse.dir": (work / "warehouse").as_uri(),
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    builder = SparkSession.builder.master("local[1]").appName("gobblin-assets: an archive of classes")
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    frame = spark.range(100).selectExpr(
        "id", "id % 3 AS part", "CAST(id AS STRING) AS name", "current_timestamp() AS at"
    )
    frame.write.partitionBy("part").option("compression", "zstd").parquet(str(work / "rows"))
    read = spark.read.parquet(str(work / "rows"))
    read.groupBy("part").agg({"id": "max", "name": "min"}).orderBy("part").collect()
    read.sortWithinPartitions("name").limit(3).collect()
    spark.stop()
    # PySpark leaves its JVM to itself; it ends when the connection to it does, and writes the archive then.
    gateway = cast("Any", SparkContext._gateway)  # noqa: SLF001  PySpark shows its JVM nowhere else
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=MAKE_S_MAX)


if __name__ == "__main__":
    _sample(Path(sys.argv[1]), Path(sys.argv[2]))
