"""Requests sent to a store: signed, repeated within bounds, and failures as families of errors.

The outcome is unknown if a request was sent and no answer came, or if something between the two sides answered. A
request that may be repeated is then sent again; another one raises OutcomeUnknownError, and its sender looks at the
object.
"""

import datetime as dt
import io
import re
import ssl
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, SSLError
from urllib3.util import Timeout

from gobblin_assets.errors import GobblinError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.fs.objects import UNSUPPORTED
from gobblin_assets.fs.s3.answers import S3Answer, S3Failure, read_failure
from gobblin_assets.fs.s3.credentials import Signer, StoreAccount, open_store_account
from gobblin_assets.fs.s3.requests import Repeat, RequestTarget, S3Request, encode_query, find_target
from gobblin_assets.fs.s3.s3_settings import PREFIX, S3Settings
from gobblin_assets.fs.servers import BUSY_TRIES_MAX, TRIES_MAX, back_off_s, reason_of

BLOCK_BYTES: Final = 1 << 18
"""A body that is a stream is sent in such blocks."""

SEND_WAIT_S: Final = 60.0
"""For each block."""

CONNECTIONS_KEPT_MAX: Final = 64
"""To one host, while nobody needs them."""

CONNECT_WAIT_S: Final = 5.0
ANSWER_WAIT_S: Final = 60.0
"""For each piece of an answer. A store that completes a large upload sends spaces meanwhile."""

CONFLICT_CODES: Final = frozenset({"ConditionalRequestConflict", "OperationAborted"})
_BUSY_CODES: Final = frozenset({
    "SlowDown", "ServiceUnavailable", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests",
})  # fmt: skip
_SPOILED_CODES: Final = frozenset({
    "RequestTimeout", "BadDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch",
})  # fmt: skip
_AGAIN_CODES: Final = _BUSY_CODES | _SPOILED_CODES | CONFLICT_CODES
_TOO_MANY: Final = 429
_UNAVAILABLE: Final = 503
_SERVER_FAILED: Final = 500
_NOT_IMPLEMENTED: Final = 501
_REDIRECTED: Final = frozenset({301, 302, 307, 308})
_FORBIDDEN: Final = frozenset({401, 403})
_UNEXPLAINED: Final = _FORBIDDEN | {400}
_ABOUT_KEYS: Final = MappingProxyType({
    "InvalidAccessKeyId": ("ACCESS_KEY_ID", "The store knows no such key."),
    "XAdminUserNotFound": ("ACCESS_KEY_ID", "The store knows no such key."),
    "SignatureDoesNotMatch": ("SECRET_ACCESS_KEY", "It is not the secret of this access key."),
    "ExpiredToken": ("SESSION_TOKEN", "These keys were lent for a time, which is over."),
    "InvalidToken": ("SESSION_TOKEN", "It does not belong to these keys."),
    "AuthorizationHeaderMalformed": ("ACCESS_KEY_ID", "The keys are no keys of this store."),
})  # fmt: skip
"""The variable that is wrong, by the store's word, and what is wrong with it."""

_WRONG_REGION: Final = re.compile(r"""region ['"][a-z0-9-]*['"] is wrong; expecting ['"]([a-z0-9-]{1,64})['"]""")
"""AWS, MinIO and versitygw say it with these words."""


class _Connection(HTTPConnection):
    """A connection that gives each block of a body a limit of time of its own.

    urllib3 leaves the time to connect on a connection while it sends, and one call that sends a body counts it over the
    whole body.
    """

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


class S3Client:
    """Safe to share between threads. Nothing is connected to before the first request.

    ``option``: where a person wrote the place, for errors.
    """

    def __init__(
        self,
        settings: S3Settings,
        option: str,
        *,
        answer_wait_s: float = ANSWER_WAIT_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._option = option
        self._sleep = sleep
        self._lock = threading.Lock()
        self._account: tuple[StoreAccount, Signer] | None = None
        self._pools = open_pools(connect_wait_s=CONNECT_WAIT_S, answer_wait_s=answer_wait_s, ca_file=settings.ca_file)

    def send(self, request: S3Request, *, answers: Collection[int | str] = ()) -> S3Answer:
        """The answer: a success, or a failure whose status or code is one of ``answers``. Others are raised."""
        account, signer = self._open_account()
        target = find_target(request, self._settings.endpoint_url, account.region)
        for number in range(1, BUSY_TRIES_MAX + 1):
            tries_max = TRIES_MAX
            outcome = self._try(request, target, account, signer)
            if isinstance(outcome, S3Answer):
                if outcome.failure is None or outcome.status in answers or outcome.failure.code in answers:
                    return outcome
                if request.method == "HEAD" and outcome.status in _UNEXPLAINED:
                    outcome = self._ask_why(request, outcome, account, signer)
                error = self._explain(request, outcome.failure or S3Failure(outcome.status), outcome)
                if outcome.failure is not None and _is_busy(outcome.failure):
                    tries_max = BUSY_TRIES_MAX
            else:
                error = outcome
            if not isinstance(error, RetryableError) or number >= tries_max:
                raise error
            self._sleep(back_off_s(number))
        raise AssertionError(BUSY_TRIES_MAX)

    def _open_account(self) -> tuple[StoreAccount, Signer]:
        with self._lock:
            if self._account is None:
                account = open_store_account(self._settings)
                self._account = account, Signer(account.region)
            return self._account

    def _try(
        self, request: S3Request, target: RequestTarget, account: StoreAccount, signer: Signer
    ) -> S3Answer | RetryableError | OutcomeUnknownError:
        headers = signer.sign(request, target, account.credentials(), dt.datetime.now(dt.UTC))
        query = encode_query(request.query)
        pool = self._pools.connection_from_host(target.host, target.port, target.scheme)
        try:
            answer = pool.urlopen(
                request.method,
                f"{target.path}?{query}" if query else target.path,
                body=io.BytesIO(request.body) if request.body else None,
                headers={**headers, "content-length": str(len(request.body))} if _has_body(request) else headers,
                retries=False,
                redirect=False,
                decode_content=False,
            )
        except (ConnectTimeoutError, NewConnectionError) as error:
            return RetryableError(f"can't reach the store: {reason_of(error)}", passes=True, hint=self._hint_of_place())
        except SSLError as error:
            if not isinstance(error.args[0], ssl.SSLCertVerificationError):
                return _without_answer(request, reason_of(error))
            raise RejectedError(
                f"no TLS with the store: {reason_of(error)}",
                field=f"{PREFIX}ENDPOINT_URL",
                hint=f"Correct it, or name the certificates to trust: {PREFIX}CA_FILE.",
            ) from error
        except HTTPError as error:
            return _without_answer(request, reason_of(error))
        found = {name.lower(): value for name, value in answer.headers.items()}
        return S3Answer(answer.status, found, answer.data, read_failure(request.method, answer.status, answer.data))

    def _ask_why(self, request: S3Request, answer: S3Answer, account: StoreAccount, signer: Signer) -> S3Answer:
        """The answer to a HEAD has no body, and so no word of the store: a GET of one byte is refused with one."""
        asked = replace(request, method="GET", headers={**request.headers, "range": "bytes=0-0"})
        target = find_target(asked, self._settings.endpoint_url, account.region)
        found = self._try(asked, target, account, signer)
        return found if isinstance(found, S3Answer) and found.status == answer.status else answer

    def _explain(self, request: S3Request, failure: S3Failure, answer: S3Answer) -> GobblinError:
        said = f"can't {request.action} {request.path}: {failure}"
        if failure.code in _AGAIN_CODES or failure.status == _TOO_MANY:
            return RetryableError(said, passes=_is_busy(failure), path=request.path)
        if failure.status == _NOT_IMPLEMENTED:
            hint = "Use a store that can: docs/STORES_REFERENCE.md."
            return RejectedError(said, field=self._option, hint=hint, path=request.path, **{UNSUPPORTED: True})
        if failure.status >= _SERVER_FAILED or failure.status < 300:
            return _without_answer(request, str(failure))
        region = answer.headers.get("x-amz-bucket-region") or _find_region(failure)
        if failure.status in _REDIRECTED or (region and failure.code == "AuthorizationHeaderMalformed"):
            fix = f"Set {PREFIX}REGION={region}." if region else f"Correct {PREFIX}ENDPOINT_URL and {PREFIX}REGION."
            return RejectedError(said, field=f"{PREFIX}REGION", hint=fix)
        if failure.code in _ABOUT_KEYS:
            name, reason = _ABOUT_KEYS[failure.code]
            fix = "Correct it." if self._settings.access_key_id else "AWS's own chain gave the keys: correct its files."
            return RejectedError(said, field=f"{PREFIX}{name}", hint=f"{reason} {fix}")
        if failure.code == "RequestTimeTooSkewed":
            return RejectedError(said, field=self._option, hint="Set this machine's clock.")
        if failure.status in _FORBIDDEN:
            return RejectedError(
                said,
                field=self._option,
                hint=f"Give the keys the right to {request.action} what is there (and to list the bucket: without it, "
                "a store calls missing objects forbidden).",
                path=request.path,
            )
        if failure.code == "NoSuchBucket":
            return RejectedError(
                f"there is no bucket {request.bucket}", field=self._option, hint="Correct the name, or make the bucket."
            )
        return RejectedError(said, field=self._option, hint="Look at what the store says.", path=request.path)

    def _hint_of_place(self) -> str:
        return f"Is {PREFIX}ENDPOINT_URL right, and the store up?" if self._settings.endpoint_url else ""


def _find_region(failure: S3Failure) -> str | None:
    """The region that the store says that it is in, where another was named."""
    found = _WRONG_REGION.search(failure.message)
    return None if found is None else found[1]


def _is_busy(failure: S3Failure) -> bool:
    return failure.code in _BUSY_CODES or failure.status in {_TOO_MANY, _UNAVAILABLE}


def _has_body(request: S3Request) -> bool:
    return request.method in {"PUT", "POST"}


def _without_answer(request: S3Request, reason: str) -> RetryableError | OutcomeUnknownError:
    said = f"can't say whether this happened: {request.action} {request.path}: {reason}"
    if request.repeat is Repeat.ANY:
        return RetryableError(f"can't {request.action} {request.path}: {reason}", passes=True, path=request.path)
    return OutcomeUnknownError(said, path=request.path)
