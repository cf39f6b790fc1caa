"""Packs of job templates as files: a zip file, or a directory that one could be made of."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.template_store import PACK_BYTES_MAX, TemplatePack, read_pack_file

_SUFFIXES: Final = frozenset({".template", ".yaml"})
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""The first one that zip files know."""


def read_pack_at(path: Path) -> TemplatePack:
    """RejectedError names the file of the pack that is wrong, the option in it, and the fix."""
    try:
        if not path.is_dir():
            with path.open("rb") as file:
                return read_pack_file(file.read(PACK_BYTES_MAX + 1))
        files = sorted(each for each in path.rglob("*") if each.is_file() and each.suffix in _SUFFIXES)
        return read_pack_file(zip_pack({each.relative_to(path).as_posix(): each.read_bytes() for each in files}))
    except OSError as error:
        raise RejectedError(
            f"the pack can't be read: {error.strerror}", field=str(path), hint="Give a zip file or a directory."
        ) from error


def zip_pack(files: Mapping[str, bytes]) -> bytes:
    """A zip file of these files by their paths: the same bytes for the same files."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, each in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _NO_TIME), each, zipfile.ZIP_DEFLATED)
    return content.getvalue()
