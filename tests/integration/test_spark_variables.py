"""Variables of the environment that name other Sparks, beside a server of ours."""

import os

from gobblin_assets.spark.connect_server import ConnectServer
from tests.support.spark import STRANGERS, in_child, open_remote


def _open_among_strangers(server: ConnectServer) -> int:
    os.environ.update(STRANGERS)
    spark = open_remote(server)
    found = spark.range(3).count()
    spark.stop()
    assert {name: os.environ.get(name) for name in STRANGERS} == STRANGERS
    return found


def test_what_the_environment_says_of_other_sparks_counts_for_none_of_ours(connect: ConnectServer) -> None:
    """With MASTER beside a remote, PySpark refuses both, in a text with the whole address and its token."""
    assert in_child(_open_among_strangers, connect) == 3
