"""Settings from the environment by which Google's and Azure's stores are reached.

No secret appears in a repr, in errors or in pickles.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from gobblin_assets.errors import RejectedError

ACCOUNT_PLACE: Final = "{account}"


@dataclass(frozen=True, slots=True)
class CloudWords:
    """The words of errors about one provider.

    ``key``: the variable that a person sets first, of those that hold keys.
    """

    provider: str
    prefix: str
    key: str

    @property
    def key_variable(self) -> str:
        return self.prefix + self.key

    @property
    def endpoint_variable(self) -> str:
        return f"{self.prefix}ENDPOINT_URL"

    @property
    def ca_variable(self) -> str:
        return f"{self.prefix}CA_FILE"


GOOGLE: Final = CloudWords("Google", "GOBBLIN_GCS_", "SERVICE_ACCOUNT_FILE")
AZURE: Final = CloudWords("Azure", "GOBBLIN_AZURE_", "ACCOUNT_KEY")


@dataclass(frozen=True, slots=True)
class GcsSettings:
    """The way to Google's stores.

    ``endpoint_url``: of another one. Without file, key and token, Google's own chain is asked. ``service_account_key``:
    the text of a service account's JSON file. ``token``: of OAuth, used as it is.
    """

    endpoint_url: str | None = None
    service_account_file: str | None = None
    service_account_key: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None


@dataclass(frozen=True, slots=True)
class AzureSettings:
    """The way to Azure's stores.

    ``endpoint_url``: of the Blob service; ``{account}`` stands for the account. Without key and token, Azure's own
    chain is asked.
    """

    endpoint_url: str | None = None
    account_key: str | None = field(default=None, repr=False)
    sas_token: str | None = field(default=None, repr=False)
    ca_file: str | None = None


def read_gcs_settings(environment: Mapping[str, str]) -> GcsSettings:
    """From ``GOBBLIN_GCS_ENDPOINT_URL`` and so on; empty values count as missing. RejectedError names the variable."""
    given = _read(environment, GOOGLE, ("service_account_file", "service_account_key", "token"))
    # Not shown: it may be the key itself.
    _require_file(given["service_account_file"], f"{GOOGLE.prefix}SERVICE_ACCOUNT_FILE", is_shown=False)
    return GcsSettings(**given)


def read_azure_settings(environment: Mapping[str, str]) -> AzureSettings:
    """The same from ``GOBBLIN_AZURE_ENDPOINT_URL`` and so on."""
    return AzureSettings(**_read(environment, AZURE, ("account_key", "sas_token")))


def _read(environment: Mapping[str, str], words: CloudWords, keys: Sequence[str]) -> dict[str, str | None]:
    names = ("endpoint_url", "ca_file", *keys)
    given = {name: environment.get(words.prefix + name.upper(), "").strip() or None for name in names}
    found = [words.prefix + name.upper() for name in keys if given[name] is not None]
    if len(found) > 1:
        raise RejectedError(f"expected one way to log in, found {', '.join(found)}", field=found[1], hint="Keep one.")
    if given["endpoint_url"] is not None:
        _check_endpoint(given["endpoint_url"], words.endpoint_variable)
    _require_file(given["ca_file"], words.ca_variable)
    return given


def _require_file(path: str | None, variable: str, *, is_shown: bool = True) -> None:
    if path is not None and not Path(path).is_file():
        said = f"a file, found none at {path!a}" if is_shown else "the path of a file, found none there"
        raise RejectedError(f"expected {said}", field=variable, hint="Correct the path.")


def _check_endpoint(url: str, variable: str) -> None:
    """The messages don't show the URL, since it may hold a secret."""
    try:
        parts = urlsplit(url.replace(ACCOUNT_PLACE, "account"))
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or parts.query or parts.fragment:
        raise RejectedError(
            "expected http:// or https://, a host and a port, found something else", field=variable, hint="Correct it."
        )
    if parts.username is not None or parts.password is not None:
        raise RejectedError(
            "the URL holds credentials", field=variable, hint="Give them by the variables of docs/STORES_REFERENCE.md."
        )
