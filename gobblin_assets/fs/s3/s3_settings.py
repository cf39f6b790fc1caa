"""Settings from the environment by which a store is reached. No secret appears in a repr, in errors or in pickles."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.servers import check_server_url

PREFIX: Final = "GOBBLIN_S3_"

DEFAULT_REGION: Final = "us-east-1"

_REGION: Final = re.compile(r"[a-z0-9-]{1,64}")
_KEY: Final = re.compile(r"[ -~]+")
"""Printable ASCII. An error about a header repeats the header."""


@dataclass(frozen=True, slots=True)
class S3Settings:
    """The way to a store. ``endpoint_url``: of one other than AWS's, such as ``https://store.example.com:9000``.

    Without ``access_key_id``, and without ``region``, AWS's own chain is asked. ``ca_file``: the certificates to trust,
    where the machine does not know the store's.
    """

    endpoint_url: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    ca_file: str | None = None


def read_s3_settings(environment: Mapping[str, str]) -> S3Settings:
    """From ``GOBBLIN_S3_ENDPOINT_URL``, ``…_REGION``, ``…_ACCESS_KEY_ID`` and so on; empty values count as missing.

    RejectedError names the variable.
    """
    names = ("endpoint_url", "region", "access_key_id", "secret_access_key", "session_token", "ca_file")
    found = {name: environment.get(PREFIX + name.upper(), "").strip() or None for name in names}
    settings = S3Settings(**found)
    for name in ("access_key_id", "secret_access_key", "session_token"):
        if not is_key(found[name]):
            raise _refuse(name, "it has a character that no key has", "Set it again: printable ASCII.")
    if settings.endpoint_url is not None:
        said = f"Give them as {PREFIX}ACCESS_KEY_ID and …SECRET_ACCESS_KEY."
        variable = f"{PREFIX}ENDPOINT_URL"
        check_server_url(settings.endpoint_url, variable, example="https://host:port", credentials=said)
    if settings.region is not None and not _REGION.fullmatch(settings.region):
        raise _refuse("region", "expected a region such as eu-central-1, found something else", "Correct it.")
    if settings.ca_file is not None and not Path(settings.ca_file).is_file():
        raise _refuse("ca_file", f"expected a file, found none at {settings.ca_file!a}", "Correct the path.")
    if (settings.access_key_id is None) != (settings.secret_access_key is None):
        missing = "access_key_id" if settings.access_key_id is None else "secret_access_key"
        raise _refuse(missing, "expected a key with its secret, found one of them", "Set both, or neither.")
    return settings


def is_key(text: str | None) -> bool:
    """Whether requests can carry it, if it is there."""
    return text is None or _KEY.fullmatch(text) is not None


def _refuse(name: str, message: str, fix: str) -> RejectedError:
    return RejectedError(message, field=PREFIX + name.upper(), hint=fix)
