"""As whom Spark reaches HDFS: as the user that the product's own client names.

Hadoop's client of a JVM reads the user from ``HADOOP_USER_NAME`` when the JVM first asks. A gateway's JVM says the user
on whose behalf it acts, as hdfs-native does: with simple authentication, that is what Spark's executors say too.
"""

import getpass
import os
from collections.abc import Iterable, Mapping

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.hdfs.hdfs_settings import HADOOP_USER, PREFIX, act_as, find_named_user
from gobblin_assets.fs.registry import scheme_of


def find_hdfs_user(environment: Mapping[str, str]) -> str:
    """The user as whom a JVM with this environment reaches HDFS; empty where the process has no name."""
    try:
        return find_named_user(environment) or getpass.getuser()
    except (KeyError, OSError):
        return ""


def find_place_user(uris: Iterable[str], environment: Mapping[str, str]) -> str | None:
    """The user as whom files at these places have to be read; None if none of them is on HDFS."""
    return find_hdfs_user(environment) if any(scheme_of(uri) == "hdfs" for uri in uris) else None


def prepare_hdfs_user() -> None:
    """Name the user before this process starts a JVM, which has its environment."""
    user = find_named_user(os.environ)
    if user is not None:
        act_as(user)


def name_hdfs_user(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that the environment of a JVM needs besides."""
    user = find_named_user(environment)
    return {} if user is None else {HADOOP_USER: user}


def refuse_other_user(started_as: str, wanted: str) -> RejectedError:
    return RejectedError(
        f"Spark runs as {started_as or 'nobody'} on HDFS, and this job's files are {wanted}'s",
        field=f"{PREFIX}USER",
        hint="Start another process, or another server, with the variables of this user.",
    )
