"""Answers of HTTP/1.1, read from a connection: what `http.client` does, without its parser of letters' headers.

That parser is made for e-mail, and takes half of the processor's time of a small request.
"""

from collections.abc import Mapping
from typing import BinaryIO, Final, NamedTuple

LINE_BYTES_MAX: Final = 1 << 16
HEADERS_MAX: Final = 200

_VERSIONS: Final = (b"HTTP/1.1", b"HTTP/1.0")
_NO_CONTENT: Final = frozenset({204, 304})
_OK: Final = 200


class HttpAnswer(NamedTuple):
    """``headers`` have small letters; of one that comes twice, all values with commas between."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class BrokenAnswerError(Exception):
    """It was cut off, or is no HTTP."""


def read_answer(stream: BinaryIO, method: str) -> tuple[HttpAnswer, bool]:
    """The answer, and whether the connection can be used again. OSError as the stream raises it."""
    version, status = _read_status(stream)
    headers = _read_headers(stream)
    # What the store says before its answer.
    while status < _OK:
        version, status = _read_status(stream)
        headers = _read_headers(stream)
    tokens = {each.strip().lower() for each in headers.get("connection", "").split(",")}
    may_go_on = "close" not in tokens and (version == _VERSIONS[0] or "keep-alive" in tokens)
    length = headers.get("content-length")
    if method == "HEAD" or status in _NO_CONTENT:
        body = b""
    elif headers.get("transfer-encoding", "").lower() == "chunked":
        body = _read_chunks(stream)
    elif length is not None:
        body = _read_whole(stream, _parse_number(length.encode("latin-1"), 10))
    else:
        body, may_go_on = stream.read(), False
    return HttpAnswer(status, headers, body), may_go_on


def _read_status(stream: BinaryIO) -> tuple[bytes, int]:
    words = _read_line(stream).split(None, 2)
    if len(words) < 2 or words[0] not in _VERSIONS:
        raise BrokenAnswerError("no line of a status")
    return words[0], _parse_number(words[1], 10)


def _read_headers(stream: BinaryIO) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(HEADERS_MAX):
        line = _read_line(stream)
        if not line:
            return headers
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not name or name[0].isspace():
            raise BrokenAnswerError("no header")
        key, text = name.strip().lower(), value.strip()
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    raise BrokenAnswerError(f"more than {HEADERS_MAX} headers")


def _read_chunks(stream: BinaryIO) -> bytes:
    chunks = []
    while size := _parse_number(_read_line(stream).partition(b";")[0].strip(), 16):
        chunks.append(_read_whole(stream, size))
        if _read_line(stream):
            raise BrokenAnswerError("a chunk is longer than it says")
    # Headers behind the body say nothing that is asked for.
    _read_headers(stream)
    return b"".join(chunks)


def _read_whole(stream: BinaryIO, size_bytes: int) -> bytes:
    content = stream.read(size_bytes)
    if len(content) != size_bytes:
        raise BrokenAnswerError("cut off")
    return content


def _read_line(stream: BinaryIO) -> bytes:
    """Without its end."""
    line = stream.readline(LINE_BYTES_MAX)
    if not line.endswith(b"\n"):
        raise BrokenAnswerError("cut off")
    return line.rstrip(b"\r\n")


def _parse_number(text: bytes, base: int) -> int:
    try:
        number = int(text, base)
    except ValueError:
        raise BrokenAnswerError("no number") from None
    if number < 0:
        raise BrokenAnswerError("no number")
    return number
