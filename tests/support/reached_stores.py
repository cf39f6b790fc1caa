"""New places of real stores, for fixtures whose parameter names the kind of store."""

from collections.abc import Mapping
from typing import Final

import pytest

from tests.support.hdfs_server import HdfsServer
from tests.support.s3_servers import S3Server
from tests.support.shares import rotating


def reach_bucket(request: pytest.FixtureRequest) -> tuple[str, Mapping[str, str]]:
    """The URI of a new bucket of a real server, and how it is reached."""
    server: S3Server = request.getfixturevalue("versitygw")
    return f"s3://{server.make_bucket()}", server.environment


def reach_hdfs(request: pytest.FixtureRequest) -> tuple[str, Mapping[str, str]]:
    """The same for a directory of HDFS."""
    server: HdfsServer = request.getfixturevalue("hdfs_server")
    return server.uri(server.make_root()), server.environment


_REACHES: Final = {"store": reach_bucket, "hdfs": reach_hdfs}
STORES: Final = ["store", rotating("hdfs")]
"""The parameters of a fixture that calls ``reach_destination``."""


def reach_destination(request: pytest.FixtureRequest) -> tuple[str, Mapping[str, str]]:
    """The URI for a destination in the store of the fixture's parameter, and how it is reached."""
    place, environment = _REACHES[request.param](request)
    return f"{place}/lake", environment
