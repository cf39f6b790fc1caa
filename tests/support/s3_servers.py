"""Real servers that speak S3, for tests: versitygw (Go), moto (Python) and S3Proxy (Java), each on a free port.

versitygw is built once (``demo.s3.gateway``); where there is no Go, its tests are skipped. It keeps all conditions.
moto and S3Proxy keep only some of them, or none: a rehearsal has to notice.
"""

import datetime as dt
import ipaddress
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from demo.kafka.jars import resolve_jars
from demo.s3.gateway import REGION, build_versitygw, run_gateway
from demo.server_process import serve
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.s3.client import S3Client
from gobblin_assets.fs.s3.object_files import S3ObjectFiles
from gobblin_assets.fs.s3.requests import Repeat, S3Request
from gobblin_assets.fs.s3.s3_settings import PREFIX, S3Settings

S3PROXY: Final = "org.gaul:s3proxy:2.7.0"
USER: Final = "tester"
SECRET: Final = "se/cret+of=the tester"


@dataclass(frozen=True, slots=True)
class Certificate:
    """PEM files: a certificate of 127.0.0.1 that signs itself, and its key."""

    file: Path
    key_file: Path


@dataclass(frozen=True, slots=True)
class S3Server:
    """One server. ``option``: the one that errors name."""

    endpoint_url: str
    option: str = "destination"

    @property
    def settings(self) -> S3Settings:
        return S3Settings(self.endpoint_url, REGION, USER, SECRET)

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.endpoint_url)
        return parts.hostname or "", parts.port or 0

    @property
    def environment(self) -> Mapping[str, str]:
        found = self.settings
        return {
            f"{PREFIX}ENDPOINT_URL": self.endpoint_url,
            f"{PREFIX}REGION": REGION,
            f"{PREFIX}ACCESS_KEY_ID": USER,
            f"{PREFIX}SECRET_ACCESS_KEY": found.secret_access_key or "",
        }

    def open(self) -> S3ObjectFiles:
        return S3ObjectFiles(S3Client(self.settings, self.option))

    def make_bucket(self) -> str:
        """The name of a new, empty one."""
        name = f"bucket-{uuid.uuid4().hex}"
        S3Client(self.settings, self.option).send(S3Request("make", "PUT", name, "", Repeat.ANY))
        return name


@pytest.fixture(scope="session")
def versitygw() -> Iterator[S3Server]:
    with run_versitygw() as server:
        yield server


@contextmanager
def run_versitygw(certificate: Certificate | None = None) -> Iterator[S3Server]:
    """``certificate``: by TLS, as this host."""
    try:
        build_versitygw()
    except RejectedError as error:
        if error.field == "PATH":
            pytest.skip(str(error))
        raise
    tls = () if certificate is None else ("--cert", str(certificate.file), "--key", str(certificate.key_file))
    with _folder("versitygw") as folder, run_gateway(folder, USER, SECRET, tls) as port:
        yield S3Server(f"{'https' if tls else 'http'}://127.0.0.1:{port}")


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Server]:
    with _folder("moto") as folder:

        def command(port: int) -> list[str]:
            return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]

        with serve(command, folder / "log", {}) as port:
            yield S3Server(f"http://127.0.0.1:{port}")


@pytest.fixture(scope="session")
def s3proxy() -> Iterator[S3Server]:
    jars = resolve_jars("s3proxy", [S3PROXY])
    with _folder("s3proxy") as folder:
        (folder / "data").mkdir()

        def command(port: int) -> list[str]:
            lines = {
                "s3proxy.endpoint": f"http://127.0.0.1:{port}",
                "s3proxy.authorization": "aws-v4",
                "s3proxy.identity": USER,
                "s3proxy.credential": SECRET,
                "jclouds.provider": "filesystem-nio2",
                "jclouds.identity": USER,
                "jclouds.credential": SECRET,
                "jclouds.filesystem.basedir": str(folder / "data"),
            }
            settings = folder / "s3proxy.conf"
            settings.write_text("".join(f"{name}={value}\n" for name, value in lines.items()), encoding="utf-8")
            return ["java", "-cp", f"{jars}/*", "org.gaul.s3proxy.Main", "--properties", str(settings)]

        with serve(command, folder / "log", {}) as port:
            yield S3Server(f"http://127.0.0.1:{port}")


def make_certificate(folder: Path, *, is_authority: bool = True) -> Certificate:
    """``is_authority``: some clients refuse a server whose certificate may sign others."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a store of tests")])
    now = dt.datetime.now(dt.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    found = Certificate(folder / "cert.pem", folder / "key.pem")
    found.file.write_bytes(made.public_bytes(Encoding.PEM))
    found.key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return found


@contextmanager
def _folder(name: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=f"gobblin-{name}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
