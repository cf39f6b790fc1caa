"""Asks, before anything is written, whether Spark's executors and a Connect server see a directory of this machine.

An executor on another machine, or one with other mounts, makes a missing directory on its own disk and writes there.
So a file is made in the directory, and one task for each slot looks for it. The JVM looks, by reflection: executors
that only write rows need no Python, and none of our packages. Executors may join while rows are written, so all are
asked again where the files then lack rows.
"""

import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession, is_remote
from pyspark.sql import functions as f

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.posix_errors import families
from gobblin_assets.spark.errors import spark_families
from gobblin_assets.spark.spark_settings import is_local

_ROWS: Final = 10_000
"""More than there are slots: Spark makes a partition for each slot that it knows."""

_ROW_OF_PARTITION: Final = (1 << 33) - 1
"""The bits of ``monotonically_increasing_id`` that count a partition's rows."""

_HOSTS_NAMED_MAX: Final = 5

_seen_by: Final = WeakKeyDictionary[SparkSession, set[str]]()
"""Below which directories each session has seen one of ours. A server without executors is asked once for all attempts
of a job; executors come and go, and are asked for each write."""

_BEFORE: Final = "Nothing was written"
_AFTER: Final = "What was written there is not in it, and nothing of it is published"


def require_sight(session: SparkSession, directory: str, *, lacks_rows: bool = False) -> None:
    """Refuse a directory that the executors, or a Connect server, don't see as this process does. It must be there.

    RejectedError names the hosts. Nothing is left behind. ``lacks_rows``: it was written to already, and fewer rows are
    there than were written.
    """
    has_executors = not is_local(str(session.conf.get("spark.master", "local")))
    # A server is asked whatever its master: an address says nothing of the machine that it leads to.
    seen, place = _seen_by.setdefault(session, set()), directory.rpartition("/")[0]
    if not has_executors and (not is_remote() or (place in seen and not lacks_rows)):
        return
    outcome = _AFTER if lacks_rows else _BEFORE
    mark = f"{directory}/.seen-{secrets.token_hex(8)}"
    with families("write", mark):
        Path(mark).touch(exist_ok=False)
    try:
        with spark_families("look whether it sees the staging"):
            if is_remote():
                # It makes the directories, and renames what tasks have written.
                _refuse_blind("server", _ask_driver(session, mark), directory, outcome)
            if has_executors:
                _refuse_blind("executors", _ask_executors(session, mark), directory, outcome)
    finally:
        with suppress(OSError):
            Path(mark).unlink(missing_ok=True)
    seen.add(place)


def _ask_driver(session: SparkSession, mark: str) -> list[str]:
    """The driver itself computes what is selected from a written-out table."""
    return _list_blind(session.sql("SELECT 1 FROM VALUES (1)"), mark)


def _ask_executors(session: SparkSession, mark: str) -> list[str]:
    first_of_slot = f.monotonically_increasing_id().bitwiseAND(_ROW_OF_PARTITION) == 0
    return _list_blind(session.range(_ROWS).where(first_of_slot), mark)


def _list_blind(asked: DataFrame, mark: str) -> list[str]:
    """The hosts that don't see ``mark``, each of them for a row of ``asked`` that it answers."""
    host = f.java_method(f.lit("java.net.InetAddress"), f.lit("getLocalHost"))
    # A static method that opens a file by its name; NULL where it raises.
    seen = f.try_reflect(*map(f.lit, ("scala.io.Source", "fromFile", mark, "UTF-8"))).isNotNull()
    found = asked.select(host.alias("host"), seen.alias("seen")).collect()
    return [row["host"] for row in found if not row["seen"]]


def _refuse_blind(who: str, hosts: Iterable[str], directory: str, outcome: str) -> None:
    names = sorted({host.partition("/")[0] or host for host in hosts})
    if not names:
        return
    more = f" and {len(names) - _HOSTS_NAMED_MAX} more" if len(names) > _HOSTS_NAMED_MAX else ""
    raise RejectedError(
        f"Spark's {who} on {', '.join(names[:_HOSTS_NAMED_MAX])}{more} can't see {directory}, which this process made. "
        + outcome,
        field="destination",
        hint="Mount the destination at the same path on this machine and on each that runs Spark for it, with the same "
        "user; or publish into a bucket or HDFS; or use --master 'local[*]'.",
    )
