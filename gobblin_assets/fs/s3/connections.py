"""Connections to stores. What is sent has a limit of time of its own, for each block of a body.

urllib3 leaves the time to connect on a connection while it sends, and one call that sends a body counts it over the
whole body.
"""

from typing import Any, Final

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util import Timeout

BLOCK_BYTES: Final = 1 << 18
"""A body that is a stream is sent in such blocks."""

SEND_WAIT_S: Final = 60.0
"""For each block."""

CONNECTIONS_KEPT_MAX: Final = 64
"""To one host, while nobody needs them."""


class _Connection(HTTPConnection):
    def endheaders(self, message_body: Any = None, *, encode_chunked: bool = False) -> None:
        super().endheaders(message_body, encode_chunked=encode_chunked)
        self.sock.settimeout(SEND_WAIT_S)


class _TlsConnection(_Connection, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def open_pools(*, connect_wait_s: float, answer_wait_s: float, ca_file: str | None) -> urllib3.PoolManager:
    """Connects to nothing. A request must be given its body as a stream, with its length."""
    pools = urllib3.PoolManager(
        maxsize=CONNECTIONS_KEPT_MAX,
        blocksize=BLOCK_BYTES,
        timeout=Timeout(connect=connect_wait_s, read=answer_wait_s),
        retries=False,
        ca_certs=ca_file,
    )
    pools.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return pools
