"""Signatures of version 4, in the headers of a request.

Source: AWS, "Create a signed AWS API request" and "Signature Calculations for the Authorization Header".
"""

import datetime as dt
import hashlib
import hmac
from typing import Final

from gobblin_assets.fs.s3.credentials import Credentials
from gobblin_assets.fs.s3.requests import CHECKSUM, RequestTarget, S3Request, encode_query

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SERVICE: Final = "s3"
_UNSIGNED: Final = "UNSIGNED-PAYLOAD"
_EMPTY_SHA256: Final = hashlib.sha256(b"").hexdigest()


class Signer:
    """Signs for one region. Safe to share between threads: the key of a day is made again if two need it at once."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._key: tuple[str, str, bytes] | None = None

    def sign(self, request: S3Request, target: RequestTarget, keys: Credentials, now: dt.datetime) -> dict[str, str]:
        """All headers of the request, with its signature. ``now`` is aware.

        Within TLS, a body with a checksum of its own is left out of the signature, as AWS's own clients do: hashing it
        would take as long as sending it.
        """
        moment = now.astimezone(dt.UTC).strftime("%Y%m%dT%H%M%SZ")
        digest = _digest_of(request, target)
        headers = {
            **request.headers,
            "host": target.host_header,
            "x-amz-content-sha256": digest,
            "x-amz-date": moment,
        }
        if keys.session_token is not None:
            headers["x-amz-security-token"] = keys.session_token
        names = sorted(headers)
        signed = ";".join(names)
        lines = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in names)
        canonical = f"{request.method}\n{target.path}\n{encode_query(request.query)}\n{lines}\n{signed}\n{digest}"
        scope = f"{moment[:8]}/{self._region}/{_SERVICE}/aws4_request"
        text = f"{_ALGORITHM}\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        signature = hmac.new(self._key_of(moment[:8], keys), text.encode(), hashlib.sha256).hexdigest()
        headers["authorization"] = (
            f"{_ALGORITHM} Credential={keys.access_key_id}/{scope}, SignedHeaders={signed}, Signature={signature}"
        )
        return headers

    def _key_of(self, day: str, keys: Credentials) -> bytes:
        known = self._key
        if known is not None and known[:2] == (day, keys.secret_access_key):
            return known[2]
        key = f"AWS4{keys.secret_access_key}".encode()
        for part in (day, self._region, _SERVICE, "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        self._key = day, keys.secret_access_key, key
        return key


def _digest_of(request: S3Request, target: RequestTarget) -> str:
    if not request.body:
        return _EMPTY_SHA256
    if target.scheme == "https" and CHECKSUM in request.headers:
        return _UNSIGNED
    return hashlib.sha256(request.body).hexdigest()
