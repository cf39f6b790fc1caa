"""Keys that were given, or those of AWS's own chain (files, roles of machines and containers), and signatures by them.

Source of the signatures, of version 4: AWS, "Create a signed AWS API request" and "Signature Calculations for the
Authorization Header".
"""

import datetime as dt
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.s3.requests import CHECKSUM, RequestTarget, S3Request, encode_query
from gobblin_assets.fs.s3.s3_settings import DEFAULT_REGION, PREFIX, S3Settings, is_key

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SERVICE: Final = "s3"
_UNSIGNED: Final = "UNSIGNED-PAYLOAD"
_EMPTY_SHA256: Final = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class Credentials:
    """The keys of a request. ``session_token``: of keys that were lent for a time."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class StoreAccount:
    """The asker, and the region. ``credentials`` gives keys that are valid now."""

    region: str
    credentials: Callable[[], Credentials]


def open_store_account(settings: S3Settings) -> StoreAccount:
    """RejectedError where neither the settings nor AWS's chain have keys."""
    if settings.access_key_id is not None and settings.secret_access_key is not None:
        given = Credentials(settings.access_key_id, settings.secret_access_key, settings.session_token)
        return StoreAccount(settings.region or DEFAULT_REGION, lambda: given)
    return _ask_aws(settings)


def find_region(settings: S3Settings) -> str:
    """The region that signatures name. Nobody is asked for keys."""
    if settings.region is not None or settings.access_key_id is not None:
        return settings.region or DEFAULT_REGION
    session, failures = _open_aws()
    try:
        return str(session.get_config_variable("region") or DEFAULT_REGION)
    except failures as error:
        raise _unusable(error) from None


def _open_aws() -> tuple[Any, type[Exception]]:
    """AWS's own chain, and the root of its errors."""
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415  its import takes longer than most commands
    from botocore.session import get_session  # noqa: PLC0415  the same

    return get_session(), BotoCoreError


def _ask_aws(settings: S3Settings) -> StoreAccount:
    session, failures = _open_aws()
    try:
        found = session.get_credentials()
        region = settings.region or session.get_config_variable("region") or DEFAULT_REGION
    except failures as error:
        raise _unusable(error) from None
    if found is None:
        raise RejectedError(
            "expected keys for S3, found none",
            field=f"{PREFIX}ACCESS_KEY_ID",
            hint=f"Set it with {PREFIX}SECRET_ACCESS_KEY, or let AWS's own chain have keys (AWS_PROFILE, a role).",
        )

    def current() -> Credentials:
        try:
            keys = found.get_frozen_credentials()
        except failures as error:
            raise RetryableError(f"AWS gives no new keys: {type(error).__name__}") from None
        texts = [keys.access_key, keys.secret_key, keys.token]
        stripped = [str(text or "").strip() or None for text in texts]
        if not all(map(is_key, stripped)):
            raise RejectedError(
                "a key of AWS's own chain has a character that no key has",
                field=f"{PREFIX}ACCESS_KEY_ID",
                hint="Correct the AWS_… variables and files, or set keys here.",
            )
        access_key, secret_key, token = stripped
        return Credentials(access_key or "", secret_key or "", token)

    return StoreAccount(str(region), current)


def _unusable(error: Exception) -> RejectedError:
    """Without the text, which may repeat a file's content."""
    return RejectedError(
        f"AWS's own chain of credentials can't be used: {type(error).__name__}",
        field=f"{PREFIX}ACCESS_KEY_ID",
        hint="Correct the AWS_… variables and files, or set keys here.",
    )


class Signer:
    """Signatures for one region, in the headers of requests.

    Safe to share between threads: the key of a day is made again if two need it at once.
    """

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
