"""Settings from the environment by which a cluster is reached."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.servers import check_server_url, find_own_name

PREFIX: Final = "GOBBLIN_HDFS_"
WEB_PORT: Final = 9870
"""Where a NameNode serves WebHDFS, unless ``GOBBLIN_HDFS_WEB_URL`` says it."""

HADOOP_USER: Final = "HADOOP_USER_NAME"
"""Where Hadoop's own clients look for the user."""

HOST: Final = "{host}"
"""In the URL of WebHDFS: the host of the cluster's URI, so that one setting serves several clusters."""

REPLICATION_MAX: Final = 512

_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,63}\$?")


@dataclass(frozen=True, slots=True)
class HdfsSettings:
    """The way to a cluster. ``user``: the name that is said to it. ``proxy_user``: on whose behalf the user acts.

    ``web_url``: of WebHDFS, where it is not ``http://{host}:9870``; ``{host}`` stands for the host of the cluster's
    URI. ``replication``: of new files; None:
    the cluster's own.
    """

    user: str
    proxy_user: str | None = None
    web_url: str | None = None
    replication: int | None = None

    @property
    def effective_user(self) -> str:
        return self.proxy_user or self.user


def read_hdfs_settings(environment: Mapping[str, str]) -> HdfsSettings:
    """From ``GOBBLIN_HDFS_USER``, ``…_PROXY_USER``, ``…_WEB_URL``, ``…_REPLICATION``; empty values count as missing.

    Without a user, Hadoop's own variable ``HADOOP_USER_NAME`` is asked, then it is the user of the process; but a
    proxy user needs a user by name, because ``act_as`` writes the proxy user there. RejectedError names the variable.
    """
    named, proxy_user = _read_users(environment)
    web_url = environment.get(PREFIX + "WEB_URL") or None
    if web_url is not None:
        said = f"Name the user as {PREFIX}USER."
        url = web_url.replace(HOST, "host")
        check_server_url(url, f"{PREFIX}WEB_URL", example="http://host:port", credentials=said)
    user = named or find_own_name(PREFIX + "USER")
    return HdfsSettings(user, proxy_user, web_url, _read_replication(environment))


def find_named_user(environment: Mapping[str, str]) -> str | None:
    """The user whose rights count, if the environment names one. RejectedError names the variable."""
    named, proxy_user = _read_users(environment)
    return proxy_user or named


def act_as(user: str) -> None:
    """Say the user to clients of this process that know no other way: hdfs-native, and the JVMs that it starts.

    They read the environment whenever they connect. So a process acts as one HDFS user.
    """
    os.environ[HADOOP_USER] = user


def _read_users(environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The user, and on whose behalf; each None where no variable names one."""
    given, proxy_user = (environment.get(PREFIX + name) or None for name in ("USER", "PROXY_USER"))
    user = given or environment.get(HADOOP_USER) or None
    for name, value in (("user", user), ("proxy_user", proxy_user)):
        if value is not None and not _USER.fullmatch(value):
            raise _refuse(name, f"expected the name of a user, found {value!a}", "Correct it.")
    if proxy_user is not None and given is None:
        raise _refuse("user", "a proxy user needs a user who acts for them", "Name that HDFS user here.")
    return user, proxy_user


def _read_replication(environment: Mapping[str, str]) -> int | None:
    text = environment.get(PREFIX + "REPLICATION") or None
    if text is None:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= REPLICATION_MAX:
        raise _refuse("replication", f"expected 1 to {REPLICATION_MAX}, found {text!a}", "Correct it.")
    return int(text)


def _refuse(name: str, message: str, fix: str) -> RejectedError:
    return RejectedError(message, field=PREFIX + name.upper(), hint=fix)
