"""Answers of HTTP/1.1 as stores send them: what ends them, what may follow, and what is none."""

import io

import pytest

from gobblin_assets.fs.s3.http_answers import HEADERS_MAX, LINE_BYTES_MAX, BrokenAnswerError, HttpAnswer, read_answer

OK = b"HTTP/1.1 200 OK\r\n"


def read(text: bytes, method: str = "GET") -> tuple[HttpAnswer, bool]:
    stream = io.BytesIO(text)
    found = read_answer(stream, method)
    assert not stream.read(), "something is left of the answer"
    return found


@pytest.mark.parametrize(
    ("text", "method", "body", "may_go_on"),
    [
        (OK + b"Content-Length: 5\r\n\r\nbytes", "GET", b"bytes", True),
        (OK + b"content-length: 0\r\n\r\n", "PUT", b"", True),
        (OK + b"Content-Length: 5\r\n\r\n", "HEAD", b"", True),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", "HEAD", b"", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "DELETE", b"", True),
        (b"HTTP/1.1 304\r\nContent-Length: 9\r\n\r\n", "GET", b"", True),
        (OK + b"\r\nall until the end", "GET", b"all until the end", False),
        (OK + b"Connection: close\r\nContent-Length: 1\r\n\r\na", "GET", b"a", False),
        (OK + b"Connection: x, Close\r\nContent-Length: 1\r\n\r\na", "GET", b"a", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", "GET", b"a", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na", "GET", b"a", True),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nbytes\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n", "GET",
         b"bytes0123456789", True),
        (OK + b"transfer-encoding: Chunked\r\n\r\n0\r\nTrailer: a\r\n\r\n", "POST", b"", True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\na", "PUT", b"a", True),
        (OK.replace(b"\r", b"") + b"Content-Length: 1\n\na", "GET", b"a", True),
    ],
)  # fmt: skip
def test_an_answer_ends_where_it_says(text: bytes, method: str, body: bytes, may_go_on: bool) -> None:
    answer, goes_on = read(text, method)
    assert (answer.body, goes_on) == (body, may_go_on)


def test_headers_have_small_letters_and_all_their_values() -> None:
    answer, _goes_on = read(b'HTTP/1.1 412 No\r\nETag:  "a:b" \r\nX-A: 1\r\nx-a: \xe4\r\nContent-Length: 0\r\n\r\n')
    assert answer == HttpAnswer(412, {"etag": '"a:b"', "x-a": "1, \xe4", "content-length": "0"}, b"")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"HTTP/1.1 200 OK",
        b"<html>\r\n",
        b"SSH-2.0-OpenSSH 200\r\n\r\n",
        b"HTTP/1.1 many\r\n\r\n",
        b"HTTP/1.1 -1\r\n\r\n",
        OK,
        OK + b"Content-Length: 5\r\n\r\nbyte",
        OK + b"Content-Length: five\r\n\r\nbytes",
        OK + b"Content-Length: -5\r\n\r\nbytes",
        OK + b"no header\r\n\r\n",
        OK + b" folded: a\r\n\r\n",
        OK + b"A: " + b"a" * LINE_BYTES_MAX + b"\r\n\r\n",
        OK + b"A: a\r\n" * (HEADERS_MAX + 1) + b"\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nbyte",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nbytes and more\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nfive\r\nbytes\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nbytes\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nbytes\r\n0\r\n",
    ],
    ids=lambda text: ascii(text[:60]),
)
def test_what_is_cut_off_or_no_answer_is_never_one(text: bytes) -> None:
    with pytest.raises(BrokenAnswerError):
        read_answer(io.BytesIO(text), "GET")
