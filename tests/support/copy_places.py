"""The places that copies go to, for suites over all of them: a directory, a bucket, a directory of HDFS."""

import os
from pathlib import Path
from typing import Final

import pytest

from tests.support.copy_lake import CopyLake
from tests.support.hdfs_lake import make_hdfs_lake
from tests.support.hdfs_server import HdfsServer
from tests.support.object_lake import ObjectLake
from tests.support.s3_servers import S3Server

DISK: Final = "disk"
BUCKET: Final = "bucket"
HDFS: Final = "hdfs"


def make_copy_lake(
    request: pytest.FixtureRequest, kind: str, database_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> CopyLake:
    """A source with its first version, and an empty place to copy to; its server is asked for here."""
    match kind:
        case "bucket":
            return _make_object_lake(request.getfixturevalue("versitygw"), database_url, folder, monkeypatch)
        case "hdfs":
            server: HdfsServer = request.getfixturevalue("hdfs_server")
            for name in (*server.environment, "HADOOP_USER_NAME"):
                monkeypatch.setenv(name, os.environ.get(name, ""))  # put back after the test
            return make_hdfs_lake(server, database_url, folder)
        case _:
            made = CopyLake(database_url, str(folder))
            made.make_source()
            return made


def _make_object_lake(server: S3Server, database_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectLake:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    place = f"/{server.make_bucket()}/mirror"
    options = {"destination": f"s3:/{place}"}
    made = ObjectLake(database_url, str(folder), options=options, place=place, environment=dict(server.environment))
    made.make_source()
    return made
