"""Stores of ``s3://<bucket>/<prefix>``, as the environment says how to reach them."""

import os
from functools import lru_cache
from typing import Final

from gobblin_assets.fs.objects import ObjectFiles
from gobblin_assets.fs.s3.client import S3Client
from gobblin_assets.fs.s3.object_files import S3ObjectFiles
from gobblin_assets.fs.s3.requests import split_uri
from gobblin_assets.fs.s3.s3_settings import S3Settings, read_s3_settings

CLIENTS_KEPT_MAX: Final = 8


def open_s3(uri: str, option: str) -> tuple[ObjectFiles, str]:
    """The ``ObjectStoreFactory`` of the scheme ``s3``. Nothing is connected to."""
    path = split_uri(uri, option)
    return _open(read_s3_settings(os.environ), option), path


@lru_cache(CLIENTS_KEPT_MAX)
def _open(settings: S3Settings, option: str) -> S3ObjectFiles:
    """One for each way to reach a store: clients keep connections, and keys that were lent."""
    return S3ObjectFiles(S3Client(settings, option))
