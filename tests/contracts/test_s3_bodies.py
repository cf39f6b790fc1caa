"""Bodies of requests and answers: sent however slowly a store reads, and kept as the store has them."""

import gzip
import itertools
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import google_crc32c
import pytest

from gobblin_assets.fs.objects import UploadId
from gobblin_assets.fs.s3 import client as s3_client
from gobblin_assets.fs.s3.client import S3Client
from gobblin_assets.fs.s3.object_files import S3ObjectFiles
from gobblin_assets.fs.s3.requests import Repeat, S3Request
from gobblin_assets.fs.s3.s3_settings import S3Settings
from tests.support.s3_servers import S3Server

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
