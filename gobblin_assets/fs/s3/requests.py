"""Requests to a store: what is asked, whether it may be sent again, and the host and path that it goes to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final
from urllib.parse import quote, urlsplit

from gobblin_assets.errors import RejectedError

CHECKSUM: Final = "x-amz-checksum-crc32c"
"""The header with the CRC32C of a request's body, which the store compares."""

METADATA_PREFIX: Final = "x-amz-meta-"

_UNRESERVED: Final = "-_.~"
_CHINA: Final = "cn-"
_PORTS: Final = {"http": 80, "https": 443}


class Repeat(Enum):
    """ANY: another try changes nothing more. UNSENT: only while it is certain that nothing happened."""

    ANY = auto()
    UNSENT = auto()


@dataclass(frozen=True, slots=True)
class S3Request:
    """A request to a store.

    ``action``: as errors name it, such as ``complete the upload of``. ``key`` is empty for the bucket itself.
    ``headers`` are in small letters, and all of them are signed.
    """

    action: str
    method: str
    bucket: str
    key: str
    repeat: Repeat
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)

    @property
    def path(self) -> str:
        return f"/{self.bucket}/{self.key}" if self.key else f"/{self.bucket}"


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """The place that a request goes to.

    ``path`` is encoded. ``host_header``: with the port, where it is not the scheme's own.
    """

    scheme: str
    host: str
    port: int
    path: str

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def find_target(request: S3Request, endpoint_url: str | None, region: str) -> RequestTarget:
    """At AWS, the bucket is part of the host's name, unless it has dots; elsewhere it is the first part of the path."""
    key = encode(request.key, safe="/")
    if endpoint_url is not None:
        parts = urlsplit(endpoint_url)
        port = parts.port or _PORTS[parts.scheme]
        return RequestTarget(parts.scheme, parts.hostname or "", port, f"/{encode(request.bucket)}/{key}")
    host = f"s3.{region}.amazonaws.com" + (".cn" if region.startswith(_CHINA) else "")
    if "." in request.bucket:
        return RequestTarget("https", host, 443, f"/{encode(request.bucket)}/{key}")
    return RequestTarget("https", f"{request.bucket}.{host}", 443, f"/{key}")


def describe_object(metadata: Mapping[str, str], headers: Mapping[str, str] | None) -> dict[str, str]:
    """Headers of a request that begins a new object: its metadata, and what it says of itself besides.

    A header that is not ASCII is left out: how it is signed is nowhere said.
    """
    kept = {name: value for name, value in (headers or {}).items() if value.isascii()}
    return {**kept, **{f"{METADATA_PREFIX}{name}": value for name, value in metadata.items()}}


def encode(text: str, safe: str = "") -> str:
    """Percent-encoded as signatures of version 4 want it."""
    return quote(text, safe=_UNRESERVED + safe)


def encode_query(query: Mapping[str, str]) -> str:
    return "&".join(f"{encode(name)}={encode(value)}" for name, value in sorted(query.items()))


def split_key(path: str) -> tuple[str, str]:
    """The bucket and the key of ``/<bucket>/<key>``. ValueError for another text."""
    if not path.startswith("/") or not (bucket := path[1:].partition("/")[0]):
        raise ValueError(f"expected /<bucket>/<key>, found {path!a}")
    return bucket, path[len(bucket) + 2 :]


def split_uri(uri: str, option: str) -> str:
    """``/<bucket>/<prefix>`` of ``s3://<bucket>/<prefix>``. RejectedError names ``option``."""
    _scheme, _, rest = uri.partition(":")
    if not rest.startswith("//") or not (bucket := rest[2:].partition("/")[0]) or "@" in bucket or ":" in bucket:
        raise RejectedError(
            "expected s3://<bucket>/<prefix>, found something else",
            field=option,
            hint="Name a bucket; how it is reached is said by GOBBLIN_S3_… in the environment.",
        )
    names = rest[2 + len(bucket) :].strip("/").split("/")
    if names != [""] and {"", ".", ".."} & set(names):
        raise RejectedError(
            "expected a prefix without empty names, `.` and `..`", field=option, hint="Write s3://<bucket>/a/b."
        )
    return "/".join(["", bucket, *(name for name in names if name)])
