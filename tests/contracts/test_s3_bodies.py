"""Bodies of requests and answers: sent however slowly a store reads, and kept as the store has them."""

import gzip
import itertools
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import google_crc32c
import pytest

from gobblin_assets.fs.objects import UploadId
from gobblin_assets.fs.s3 import client as s3_client
from gobblin_assets.fs.s3.client import S3Client
from gobblin_assets.fs.s3.connections import StoreConnections, StoreHost
from gobblin_assets.fs.s3.object_files import S3ObjectFiles
from gobblin_assets.fs.s3.requests import Repeat, S3Request
from gobblin_assets.fs.s3.settings import S3Settings
from tests.support import s3_servers
from tests.support.s3_servers import S3Server

versitygw = s3_servers.versitygw

KEYS: Final = S3Settings("", "us-east-1", "tester", "secret")
PAUSE_S: Final = 0.6
"""Of a store that reads nothing for a while; longer than the connections of these tests may take."""


@contextmanager
def slow_store(*, pauses: int) -> Iterator[str]:
    """The URL of a store that takes a body with pauses, and answers with an ETag."""
    with socket.socket() as listener:
        # Little is kept on the way, so that the sender waits for the reader.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                content = b""
                while b"\r\n\r\n" not in content:
                    content += connection.recv(1 << 12)
                head, _, body = content.partition(b"\r\n\r\n")
                length = int(next(line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))[15:])
                left = length - len(body)
                for number in itertools.count():
                    if not left:
                        break
                    if number < pauses:
                        time.sleep(PAUSE_S)
                    left -= len(connection.recv(1 << 16))
                connection.sendall(b'HTTP/1.1 200 OK\r\netag: "0"\r\ncontent-length: 0\r\n\r\n')

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)


def test_a_body_is_sent_to_a_store_that_reads_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time to connect is no limit of the time to send."""
    monkeypatch.setattr(s3_client, "CONNECT_WAIT_S", PAUSE_S / 2)
    content = bytes(8 << 20)
    with slow_store(pauses=2) as url:
        files = S3ObjectFiles(S3Client(replace(KEYS, endpoint_url=url), "destination"))
        part = files.write_part("/bucket/a", UploadId("1"), 1, content, google_crc32c.value(content))
    assert part.etag == "0"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "gzip, deflate"])
def test_an_object_with_a_content_encoding_is_read_as_it_is(versitygw: S3Server, encoding: str) -> None:
    """Its bytes are those that the store counts and checks, whether or not they are what their encoding says."""
    files, path = versitygw.open(), f"/{versitygw.make_bucket()}/a"
    for content in (gzip.compress(b"bytes" * 1000), b"no gzip at all"):
        headers = {"content-encoding": encoding}
        S3Client(versitygw.settings, "source").send(
            S3Request("write", "PUT", *path[1:].split("/"), Repeat.ANY, {}, headers, content)
        )
        found = files.find_object(path)
        assert found is not None
        assert found.size_bytes == len(content)
        assert files.read_range(path, found.etag, 0, found.size_bytes) == content
        with files.open_input(path) as stream:
            assert stream.read() == content


@contextmanager
def closing_store(*, says_so: bool) -> Iterator[tuple[str, list[int]]]:
    """The URL of a store that closes each connection after its answer, and the ports of those that came."""
    ports: list[int] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, (_host, port) = listener.accept()
                except OSError:
                    return
                ports.append(port)
                with connection:
                    connection.recv(1 << 12)
                    said = b"connection: close\r\n" if says_so else b""
                    connection.sendall(b"HTTP/1.1 404 Not Found\r\n" + said + b"content-length: 0\r\n\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", ports
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.mark.parametrize("says_so", [True, False])
def test_a_connection_that_the_store_closed_is_not_used_again(says_so: bool) -> None:
    """Otherwise nobody would know what became of a request that must not be sent twice."""
    with closing_store(says_so=says_so) as (url, ports):
        files = S3ObjectFiles(S3Client(replace(KEYS, endpoint_url=url), "destination"))
        for _ in range(3):
            assert files.find_object("/bucket/a") is None
            time.sleep(0.05)
    assert len(ports) == 3


def test_threads_share_connections(versitygw: S3Server) -> None:
    connections = StoreConnections(connect_wait_s=5, answer_wait_s=5, ca_file=None)
    host = StoreHost("http", *versitygw.address)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: connections.ask(host, "GET", "/", {"host": "x"}).status, range(40)))
    assert set(found) == {403}


def test_a_header_never_ends_its_line() -> None:
    connections = StoreConnections(connect_wait_s=5, answer_wait_s=5, ca_file=None)
    with pytest.raises(ValueError, match="end of a line"):
        connections.ask(StoreHost("http", "127.0.0.1", 9), "GET", "/", {"x-a": "1\r\nx-b: 2"})
