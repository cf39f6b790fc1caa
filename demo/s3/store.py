"""The store of the demo: a gateway with one bucket, and the environment by which processes reach it."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from demo.places import Place, write_store_job
from demo.s3.gateway import REGION, run_gateway
from gobblin_assets.fs.s3.client import S3Client
from gobblin_assets.fs.s3.requests import Repeat, S3Request
from gobblin_assets.fs.s3.s3_settings import PREFIX, read_s3_settings

BUCKET: Final = "nyc"
_USER: Final = "demo"


@contextmanager
def open_store(place: Place) -> Iterator[None]:
    """Run the store for the block, with the bucket and the job's file. Its secret lives as long as this process."""
    write_store_job()
    secret = secrets.token_urlsafe(24)
    with run_gateway(place.folder / "store", _USER, secret) as port:
        os.environ |= {
            f"{PREFIX}ENDPOINT_URL": f"http://127.0.0.1:{port}",
            f"{PREFIX}REGION": REGION,
            f"{PREFIX}ACCESS_KEY_ID": _USER,
            f"{PREFIX}SECRET_ACCESS_KEY": secret,
        }
        S3Client(read_s3_settings(os.environ), "destination").send(S3Request("make", "PUT", BUCKET, "", Repeat.ANY))
        yield
