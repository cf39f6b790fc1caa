"""Trees of ``gs://<bucket>/<prefix>`` and ``abfs://<container>@<account>.dfs.core.windows.net/<path>``, as the
environment says how to reach their stores.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.clouds.client import CloudClient
from gobblin_assets.fs.clouds.cloud_objects import CloudObjects, list_by_directory, list_by_key
from gobblin_assets.fs.clouds.cloud_settings import (
    ACCOUNT_PLACE,
    AZURE,
    GOOGLE,
    AzureSettings,
    CloudWords,
    GcsSettings,
    read_azure_settings,
    read_gcs_settings,
)
from gobblin_assets.fs.object_tree import ObjectTree

CONNECT_WAIT_S: Final = 5
ANSWER_WAIT_S: Final = 60
"""For each piece of an answer."""

REQUEST_S_MAX: Final = 3_600
CLIENTS_KEPT_MAX: Final = 8

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._-]{1,221}")
_CONTAINER: Final = re.compile(
    r"(?P<container>[a-z0-9-]{3,63}|\$(root|web|logs))@(?P<account>[a-z0-9]{3,24})\.dfs\."
    r"(?P<domain>core\.(windows\.net|chinacloudapi\.cn|usgovcloudapi\.net))"
)


_Store = TypeVar("_Store", GCSStore, AzureStore)


@dataclass(frozen=True, slots=True)
class CloudFiles:
    """``ListedFiles`` of one bucket."""

    objects: CloudObjects

    def open_tree(
        self, option: str, *, hidden: frozenset[str], follow_links: bool, order: Callable[[str], str] | None = None
    ) -> ObjectTree:
        """Stores have no links."""
        del follow_links
        if order is not None:
            raise RejectedError(
                "objects are not converted on the way",
                field=option,
                hint="Copy them as they are, and convert them from there.",
            )
        return ObjectTree(self.objects, option, hidden=hidden)


def open_gcs(uri: str, option: str) -> tuple[CloudFiles, str]:
    """The ``SourceFactory`` of the scheme ``gs``. Nothing is connected to. Errors never show the URI."""
    _scheme, bucket, path = _split(uri, option, "gs://<bucket>/<prefix>")
    if not _BUCKET.fullmatch(bucket):
        raise _refuse_bucket("gs://<bucket>/<prefix>", GOOGLE, option)
    return CloudFiles(_open_gcs(bucket, read_gcs_settings(os.environ), option)), path


def open_azure(uri: str, option: str) -> tuple[CloudFiles, str]:
    """The same of the schemes ``abfs`` and ``abfss``, which are reached in the same way: by TLS."""
    expected = "abfs://<container>@<account>.dfs.core.windows.net/<path>"
    scheme, bucket, path = _split(uri, option, expected)
    if not _CONTAINER.fullmatch(bucket):
        raise _refuse_bucket(expected, AZURE, option)
    return CloudFiles(_open_azure(scheme, bucket, read_azure_settings(os.environ), option)), path


def _split(uri: str, option: str, expected: str) -> tuple[str, str, str]:
    """Scheme and bucket, and the path that begins with the bucket."""
    scheme, _, rest = uri.partition("://")
    bucket, _, prefix = rest.partition("/")
    names = [name for name in prefix.strip("/").split("/") if prefix.strip("/")]
    if {"", ".", ".."} & set(names):
        raise RejectedError(
            "expected a prefix without empty names, `.` and `..`", field=option, hint=f"Write {expected}."
        )
    return scheme.lower(), bucket, "/".join(["", bucket, *names])


def _refuse_bucket(expected: str, words: CloudWords, option: str) -> RejectedError:
    return RejectedError(
        f"expected {expected}, found something else",
        field=option,
        hint=f"Correct it; keys are given by {words.prefix}… in the environment.",
    )


@lru_cache(CLIENTS_KEPT_MAX)
def _open_gcs(bucket: str, settings: GcsSettings, option: str) -> CloudObjects:
    """One for each way to reach a bucket: clients keep connections."""
    config = {
        "base_url": settings.endpoint_url and settings.endpoint_url.rstrip("/"),
        "service_account": settings.service_account_file,
        "service_account_key": settings.service_account_key,
        "bearer_token": settings.token,
    }
    # Otherwise Google unpacks objects that say that they are packed, and then ranges and lengths mean other bytes.
    headers = {"default_headers": {"accept-encoding": "gzip"}}
    options = _client_options(settings.endpoint_url, settings.ca_file) | headers
    field = GOOGLE.prefix + ("SERVICE_ACCOUNT_KEY" if settings.service_account_key else GOOGLE.key)
    store = _open_store(GCSStore, bucket, config, options, field)
    return CloudObjects(CloudClient(store, f"gs://{bucket}", GOOGLE, option), "gs", bucket, list_by_key)


@lru_cache(CLIENTS_KEPT_MAX)
def _open_azure(scheme: str, bucket: str, settings: AzureSettings, option: str) -> CloudObjects:
    container, _, host = bucket.partition("@")
    account, _, domain = host.partition(".dfs.")
    endpoint = settings.endpoint_url or f"https://{ACCOUNT_PLACE}.blob.{domain}"
    config = {
        "account_name": account,
        "endpoint": endpoint.replace(ACCOUNT_PLACE, account).rstrip("/"),
        "account_key": settings.account_key,
        "sas_key": settings.sas_token and settings.sas_token.removeprefix("?"),
    }
    if settings.account_key or settings.sas_token:
        config["credential_type"] = "access_key" if settings.account_key else "sas_token"
    options = _client_options(settings.endpoint_url, settings.ca_file)
    field = AZURE.prefix + ("SAS_TOKEN" if settings.sas_token else AZURE.key)
    store = _open_store(AzureStore, container, config, options, field)
    client = CloudClient(store, f"{scheme}://{bucket}", AZURE, option)
    return CloudObjects(client, scheme, bucket, list_by_directory)


def _client_options(endpoint_url: str | None, ca_file: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "allow_http": (endpoint_url or "").startswith("http://"),
        "connect_timeout": f"{CONNECT_WAIT_S}s",
        "read_timeout": f"{ANSWER_WAIT_S}s",
        "timeout": f"{REQUEST_S_MAX}s",
    }
    if ca_file is not None:
        options["root_certificate"] = Path(ca_file).read_bytes()
    return options


def _open_store(
    kind: Callable[..., _Store], bucket: str, config: dict[str, str | None], options: dict[str, Any], field: str
) -> _Store:
    """``field``: the variable that errors name. obstore tries once: repeating is the client's work."""
    given = {name: value for name, value in config.items() if value is not None}
    try:
        return kind(bucket, config=given, client_options=options, retry_config={"max_retries": 0})
    except (BaseError, ValueError):
        raise RejectedError(
            "the keys can't be used", field=field, hint="Look at what docs/STORES_REFERENCE.md says."
        ) from None
