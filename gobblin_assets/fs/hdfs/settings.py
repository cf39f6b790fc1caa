"""How a cluster is reached, from the environment."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.process_user import find_own_name

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
    """``user``: the name that is said to the cluster. ``proxy_user``: on whose behalf the user acts.

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
    proxy user needs a user by name, because ``streams`` writes the proxy user there. RejectedError names the variable.
    """
    given = {name: environment.get(PREFIX + name.upper()) or None for name in ("user", "proxy_user", "web_url")}
    user = given["user"] or environment.get(HADOOP_USER) or find_own_name(PREFIX + "USER")
    for name, value in (("user", user), ("proxy_user", given["proxy_user"])):
        if value is not None and not _USER.fullmatch(value):
            raise _refuse(name, f"expected the name of a user, found {value!a}", "Correct it.")
    if given["proxy_user"] is not None and given["user"] is None:
        raise _refuse("user", "a proxy user needs a user who acts for them", "Name that HDFS user here.")
    if given["web_url"] is not None:
        _check_url(given["web_url"])
    return HdfsSettings(user, given["proxy_user"], given["web_url"], _read_replication(environment))


def _read_replication(environment: Mapping[str, str]) -> int | None:
    text = environment.get(PREFIX + "REPLICATION") or None
    if text is None:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= REPLICATION_MAX:
        raise _refuse("replication", f"expected 1 to {REPLICATION_MAX}, found {text!a}", "Correct it.")
    return int(text)


def _check_url(url: str) -> None:
    """The messages don't show the URL, since it may hold a secret."""
    try:
        parts = urlsplit(url.replace(HOST, "host"))
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise _refuse("web_url", "expected a URL, found something else", "Write http://host:port.") from None
    if parts.username is not None or parts.password is not None:
        raise _refuse("web_url", "the URL holds credentials", f"Name the user as {PREFIX}USER.")
    if parts.scheme not in {"http", "https"} or not has_host or parts.path.strip("/") or parts.query or parts.fragment:
        raise _refuse("web_url", "expected http:// or https://, a host and a port, found something else", "Correct it.")


def _refuse(name: str, message: str, fix: str) -> RejectedError:
    return RejectedError(message, field=PREFIX + name.upper(), hint=fix)
