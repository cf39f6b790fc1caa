"""A bucket of versitygw on this machine, in memory, whose access log says how many requests it was sent."""

import os
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.copy_trees import open_place
from demo.s3.gateway import REGION, run_gateway
from gobblin_assets.fs.s3.client import S3Client
from gobblin_assets.fs.s3.requests import Repeat, S3Request
from gobblin_assets.fs.s3.s3_settings import PREFIX, read_s3_settings

BUCKET: Final = "bench"
_USER: Final = "bench"
_KIND: Final = "s3_"
"""Begins the eighth word of a line, which is the kind of the request."""


@dataclass(frozen=True, slots=True)
class GatewayStore:
    """``environment``: how this project reaches the store."""

    folder: Path
    environment: dict[str, str]

    @property
    def rclone_environment(self) -> dict[str, str]:
        """How rclone's ``:s3:`` reaches it."""
        return {
            "RCLONE_S3_PROVIDER": "Other",
            "RCLONE_S3_ENDPOINT": self.environment[f"{PREFIX}ENDPOINT_URL"],
            "RCLONE_S3_REGION": REGION,
            "RCLONE_S3_ACCESS_KEY_ID": _USER,
            "RCLONE_S3_SECRET_ACCESS_KEY": self.environment[f"{PREFIX}SECRET_ACCESS_KEY"],
        }

    def count_requests(self) -> Counter[str]:
        """By their kind, so far."""
        lines = (self.folder / "access").read_text(encoding="utf-8", errors="replace").splitlines()
        words = (word for line in lines for word in line.split(maxsplit=8)[:8])
        return Counter(word.removeprefix(_KIND) for word in words if word.startswith(_KIND))

    def tree(self, prefix: str) -> Path:
        """Where the gateway keeps the objects below ``<prefix>/``."""
        return self.folder / "data" / BUCKET / prefix

    def clear(self) -> None:
        """Remove all objects, and what the store keeps of uploads."""
        for path in (self.folder / "data" / BUCKET).iterdir():
            shutil.rmtree(path)


@contextmanager
def open_gateway_store(parent: Path) -> Iterator[GatewayStore]:
    """Run it for the block. Meanwhile this process's environment says how it is reached."""
    secret = secrets.token_hex(24)
    with open_place(parent) as folder:
        options = ("--access-log", str(folder / "access"))
        with run_gateway(folder, _USER, secret, options) as port:
            given = {
                f"{PREFIX}ENDPOINT_URL": f"http://127.0.0.1:{port}",
                f"{PREFIX}REGION": REGION,
                f"{PREFIX}ACCESS_KEY_ID": _USER,
                f"{PREFIX}SECRET_ACCESS_KEY": secret,
            }
            os.environ |= given
            S3Client(read_s3_settings(os.environ), "destination").send(S3Request("make", "PUT", BUCKET, "", Repeat.ANY))
            yield GatewayStore(folder, given)
