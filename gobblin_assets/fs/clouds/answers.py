"""Failures of obstore as families of errors.

Its texts repeat URLs and whole bodies of answers. So only the status, the store's word for the failure, and the kind of
a failure without an answer are taken from them.
"""

import re
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.clouds.cloud_settings import CloudWords

NOT_FOUND: Final = 404
RANGE_WRONG: Final = 416

_TOO_MANY: Final = 429
_UNAVAILABLE: Final = 503
_SERVER_FAILED: Final = 500
_NO_CONNECTION: Final = "Connect"
_FORBIDDEN: Final = frozenset({401, 403})

_STATUS: Final = re.compile(r"\n\s+inner: Status \{\n\s+status: (\d{3}),")
_KIND: Final = re.compile(r"\bHttpError \{\n\s+kind: (\w+),")
_WORD: Final = re.compile(r"<Code>(\w{1,80})</Code>")
_ABOUT_KEYS: Final = re.compile(r"\n\s+source: (Token\w*|\w*Credential\w*) \{")
_MACHINE: Final = re.compile(r"\n\s+https?://(169\.254\.169\.254|metadata\.google\.internal)[/:]")
_UNTRUSTED: Final = re.compile(r"\b(InvalidCertificate|UnknownIssuer)\b")
_BAD_KEY: Final = re.compile(r"\b(?:BadSegment|EmptySegment) \{\n\s+path: (\"(?:[^\"\\\n]|\\.)*\"),\n")


@dataclass(frozen=True, slots=True)
class CloudFailure:
    """``status``: None if there was no answer. ``word``: the store's own, such as ``AccessDenied``, or the kind of a
    failure without an answer, such as ``Connect``.

    ``is_about_keys``: of the request by which a token is got; ``of_machine``: of the machine's own identity.
    ``bad_key``: a key that no path can have, in quotes.
    """

    status: int | None
    word: str
    is_about_keys: bool = False
    of_machine: bool = False
    is_untrusted: bool = False
    bad_key: str = ""

    @property
    def is_busy(self) -> bool:
        return self.status in {_TOO_MANY, _UNAVAILABLE}

    def __str__(self) -> str:
        return " ".join(filter(None, (str(self.status or ""), self.word))) or "the answer makes no sense"


def read_cloud_failure(error: Exception) -> CloudFailure:
    text = str(error)
    status, kind, word, bad_key = (pattern.search(text) for pattern in (_STATUS, _KIND, _WORD, _BAD_KEY))
    said = word or (None if status else kind)
    return CloudFailure(
        int(status[1]) if status else None,
        said[1] if said else "",
        _ABOUT_KEYS.search(text) is not None,
        _MACHINE.search(text) is not None,
        _UNTRUSTED.search(text) is not None,
        bad_key[1] if bad_key else "",
    )


def explain_cloud_failure(
    failure: CloudFailure, words: CloudWords, *, action: str, uri: str, option: str
) -> GobblinError:
    """The error to raise for a failure that is no answer."""
    said = f"can't {action} {uri}: {failure}"
    is_refused = failure.status is not None and failure.status < _SERVER_FAILED and not failure.is_busy
    if failure.of_machine and (failure.status is None or is_refused):
        return RejectedError(
            f"expected keys for {words.provider}, found none",
            field=words.key_variable,
            hint="Set it, or another variable of docs/STORES_REFERENCE.md, "
            f"or let {words.provider}'s own chain have keys.",
        )
    if failure.is_about_keys and is_refused:
        return RejectedError(
            f"{words.provider} gives no token for these keys: {failure}", field=words.key_variable, hint="Correct them."
        )
    if failure.is_untrusted:
        fix = f"Correct it, or name the certificates to trust: {words.ca_variable}."
        return RejectedError(
            "no TLS with the store: its certificate is not trusted", field=words.endpoint_variable, hint=fix
        )
    if failure.bad_key:
        return refuse_cloud_key(failure.bad_key, uri, option)
    if failure.status in _FORBIDDEN:
        hint = f"Give the keys the right to list and read there, or correct {words.key_variable}."
        return RejectedError(said, field=option, hint=hint)
    if is_refused:
        return RejectedError(said, field=option, hint="Look at what the store says.")
    is_away = failure.status is None and failure.word == _NO_CONNECTION
    return RetryableError(said, hint=f"Is {words.endpoint_variable} right, and the store up?" if is_away else "")


def refuse_cloud_key(key: str, uri: str, option: str) -> RejectedError:
    """``uri``: where it was found, or asked for."""
    return RejectedError(
        f"{uri}: the key {key} can't be read: a name in it is empty, `.`, `..`, or has a control character",
        field=option,
        hint="Rename the object, or remove it.",
    )
