"""Real servers that speak as Google's and Azure's stores, for tests: fake-gcs-server (Go) and Azurite (Node).

fake-gcs-server asks for no keys, ignores conditions, and gives each listing in one answer. Azurite keeps conditions,
checks keys, and has no directories of its own. Both are brought once, into the user's cache folder.
"""

import base64
import datetime as dt
import hashlib
import hmac
import json
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote, urlencode, urlsplit

import pytest
import urllib3

from demo.go_programs import build_go_program
from demo.server_process import serve
from gobblin_assets.errors import RejectedError
from tests.support.azurite import NODE, install_azurite
from tests.support.s3_servers import Certificate

FAKE_GCS: Final = "github.com/fsouza/fake-gcs-server"
FAKE_GCS_VERSION: Final = "v1.56.1"

GCS_TOKEN: Final = "the-token-of-the-tester"
ACCOUNT: Final = "tester"
ACCOUNT_KEY: Final = base64.b64encode(b"the account key of the tester").decode()

_API: Final = "2018-11-09"


class CloudServer(Protocol):
    """One server. All that tests write passes by obstore: it can't say each key."""

    @property
    def address(self) -> tuple[str, int]: ...

    @property
    def environment(self) -> Mapping[str, str]: ...

    @property
    def secret(self) -> str:
        """Of the environment."""
        ...

    def at(self, port: int) -> "CloudServer":
        """The same server, reached by another port."""
        ...

    def make_bucket(self) -> str:
        """A new, empty one: what a URI says before the first slash of its path."""
        ...

    def put(self, bucket: str, key: str, content: bytes, metadata: Mapping[str, str] | None = None) -> None: ...

    def remove(self, bucket: str, key: str) -> None: ...


@dataclass(frozen=True, slots=True)
class GcsServer:
    url: str
    ca_file: Path | None = None

    @property
    def address(self) -> tuple[str, int]:
        return _address_of(self.url)

    @property
    def environment(self) -> Mapping[str, str]:
        trusted = {} if self.ca_file is None else {"GOBBLIN_GCS_CA_FILE": str(self.ca_file)}
        return {"GOBBLIN_GCS_ENDPOINT_URL": self.url, "GOBBLIN_GCS_TOKEN": GCS_TOKEN, **trusted}

    @property
    def secret(self) -> str:
        return GCS_TOKEN

    def at(self, port: int) -> "GcsServer":
        return replace(self, url=f"http://127.0.0.1:{port}")

    def make_bucket(self) -> str:
        name = f"bucket-{uuid.uuid4().hex}"
        self._send("POST", "/storage/v1/b?project=tests", json.dumps({"name": name}).encode())
        return f"gs://{name}"

    def put(self, bucket: str, key: str, content: bytes, metadata: Mapping[str, str] | None = None) -> None:
        name = bucket.removeprefix("gs://")
        query = {"uploadType": "multipart", "name": key}
        described = json.dumps({"name": key, **(metadata or {})})
        body = (
            b"--part\r\ncontent-type: application/json\r\n\r\n%s\r\n"
            b"--part\r\ncontent-type: application/octet-stream\r\n\r\n%s\r\n--part--\r\n"
        ) % (described.encode(), content)
        kind = {"content-type": "multipart/related; boundary=part"}
        self._send("POST", f"/upload/storage/v1/b/{name}/o?{urlencode(query)}", body, kind)

    def remove(self, bucket: str, key: str) -> None:
        self._send("DELETE", f"/storage/v1/b/{bucket.removeprefix('gs://')}/o/{quote(key, safe='')}")

    def _send(self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        _send(method, self.url + target, body, headers or {}, self.ca_file)


@dataclass(frozen=True, slots=True)
class PagedServer:
    """moto, taken for Google's: both list by the same requests, and moto tells three objects in an answer."""

    url: str

    @property
    def address(self) -> tuple[str, int]:
        return _address_of(self.url)

    @property
    def environment(self) -> Mapping[str, str]:
        return {"GOBBLIN_GCS_ENDPOINT_URL": self.url, "GOBBLIN_GCS_TOKEN": GCS_TOKEN}

    @property
    def secret(self) -> str:
        return GCS_TOKEN

    def at(self, port: int) -> "PagedServer":
        return replace(self, url=f"http://127.0.0.1:{port}")

    def make_bucket(self) -> str:
        # Google's clients encode a dash in it, and moto does not decode it.
        name = f"bucket{uuid.uuid4().hex}"
        _send("PUT", f"{self.url}/{name}", b"", {})
        return f"gs://{name}"

    def put(self, bucket: str, key: str, content: bytes, metadata: Mapping[str, str] | None = None) -> None:
        del metadata
        _send("PUT", f"{self.url}/{bucket.removeprefix('gs://')}/{quote(key)}", content, {})

    def remove(self, bucket: str, key: str) -> None:
        _send("DELETE", f"{self.url}/{bucket.removeprefix('gs://')}/{quote(key)}", b"", {})


@dataclass(frozen=True, slots=True)
class AzureServer:
    """``sas``: the way to log in is a token that is part of each URL."""

    url: str
    sas: bool = False

    @property
    def address(self) -> tuple[str, int]:
        return _address_of(self.url)

    @property
    def environment(self) -> Mapping[str, str]:
        keys = {"SAS_TOKEN": self.secret} if self.sas else {"ACCOUNT_KEY": self.secret}
        return {
            "GOBBLIN_AZURE_ENDPOINT_URL": f"{self.url}/{{account}}",
            **{f"GOBBLIN_AZURE_{name}": value for name, value in keys.items()},
        }

    @property
    def secret(self) -> str:
        return sign_sas() if self.sas else ACCOUNT_KEY

    def at(self, port: int) -> "AzureServer":
        return replace(self, url=f"http://127.0.0.1:{port}")

    def make_bucket(self) -> str:
        name = f"container-{uuid.uuid4().hex}"
        self._send("PUT", f"/{name}?restype=container")
        return f"abfs://{name}@{ACCOUNT}.dfs.core.windows.net"

    def put(self, bucket: str, key: str, content: bytes, metadata: Mapping[str, str] | None = None) -> None:
        headers = {"x-ms-blob-type": "BlockBlob"}
        headers |= {f"x-ms-meta-{name}": value for name, value in (metadata or {}).items()}
        self._send("PUT", f"/{_container_of(bucket)}/{quote(key, safe='/')}", content, headers)

    def remove(self, bucket: str, key: str) -> None:
        self._send("DELETE", f"/{_container_of(bucket)}/{quote(key, safe='/')}")

    def _send(self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        joined = f"{self.url}/{ACCOUNT}{target}{'&' if '?' in target else '?'}{sign_sas()}"
        _send(method, joined, body, {"x-ms-version": _API, **(headers or {})})


def sign_sas(key: str = ACCOUNT_KEY) -> str:
    """A token of the account for everything, for two days."""
    ends_at = (dt.datetime.now(dt.UTC) + dt.timedelta(days=2)).strftime("%Y-%m-%dT00:00:00Z")
    said = {"sp": "rwdlac", "ss": "b", "srt": "sco", "st": "", "se": ends_at, "sip": "", "spr": "https,http"}
    text = "".join(f"{line}\n" for line in (ACCOUNT, *said.values(), _API))
    signature = base64.b64encode(hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()).decode()
    return urlencode({**{name: value for name, value in said.items() if value}, "sv": _API, "sig": signature})


@pytest.fixture(scope="session")
def fake_gcs() -> Iterator[GcsServer]:
    with run_fake_gcs() as server:
        yield server


@pytest.fixture(scope="session")
def azurite() -> Iterator[AzureServer]:
    script = install_azurite()
    with _folder("azurite") as folder:

        def command(port: int) -> list[str]:
            place = ("--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder / "data"))
            return [str(NODE), str(script), *place, "--silent", "--skipApiVersionCheck", "--disableTelemetry"]

        with serve(command, folder / "log", {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{ACCOUNT_KEY}"}) as port:
            yield AzureServer(f"http://127.0.0.1:{port}")


@pytest.fixture(scope="session")
def paged() -> Iterator[PagedServer]:
    with _folder("moto") as folder:

        def command(port: int) -> list[str]:
            return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]

        with serve(command, folder / "log", {"MOTO_S3_DEFAULT_MAX_KEYS": "3"}) as port:
            yield PagedServer(f"http://127.0.0.1:{port}")


@pytest.fixture
def cloud(request: pytest.FixtureRequest) -> CloudServer:
    """The server whose fixture the parameter names."""
    found: CloudServer = request.getfixturevalue(request.param)
    return found


@contextmanager
def run_fake_gcs(certificate: Certificate | None = None) -> Iterator[GcsServer]:
    """``certificate``: by TLS, as this host."""
    try:
        program = build_go_program(FAKE_GCS, FAKE_GCS_VERSION)
    except RejectedError as error:
        if error.field == "PATH":
            pytest.skip(str(error))
        raise
    tls: tuple[str, ...] = ("-scheme", "http")
    if certificate is not None:
        places = ("-cert-location", str(certificate.file), "-private-key-location", str(certificate.key_file))
        tls = ("-scheme", "https", *places)
    with _folder("fake-gcs") as folder:

        def command(port: int) -> list[str]:
            place = ("-host", "127.0.0.1", "-port", str(port), "-public-host", "127.0.0.1")
            return [str(program), *tls, *place, "-backend", "memory", "-log-level", "error"]

        with serve(command, folder / "log", {}) as port:
            scheme = "http" if certificate is None else "https"
            yield GcsServer(f"{scheme}://127.0.0.1:{port}", certificate and certificate.file)


@contextmanager
def _folder(name: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=f"gobblin-{name}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _address_of(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0


def _container_of(bucket: str) -> str:
    return bucket.partition("://")[2].partition("@")[0]


def _send(method: str, url: str, body: bytes, headers: Mapping[str, str], ca_file: Path | None = None) -> None:
    with urllib3.PoolManager(ca_certs=None if ca_file is None else str(ca_file)) as pools:
        answer = pools.request(method, url, body=body, headers=dict(headers), retries=False)
    assert answer.status < 300, (method, answer.status, answer.data[:300])
