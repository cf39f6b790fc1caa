"""Archives and compressed files for copies, honest and hostile."""

import io
import os
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from tests.support.copying import fill

AT_S = 1_700_000_000


def tar_of(members: Iterable[tuple[str, bytes]], *, format_: int = tarfile.PAX_FORMAT) -> bytes:
    """A name that ends with a slash is a directory's."""
    return raw_tar(((member_of(name, content), content) for name, content in members), format_=format_)


def member_of(name: str, content: bytes = b"", type_: bytes | None = None, **attributes: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.type = type_ or (tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE)
    for each, value in attributes.items():
        setattr(info, each, value)
    return info


def raw_tar(members: Iterable[tuple[tarfile.TarInfo, bytes]], *, format_: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format_) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zip_of(members: Iterable[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name) if name.endswith("/") else name, content)
    return out.getvalue()


def put(path: Path, content: bytes, *, at_s: int = AT_S) -> Path:
    fill(path, content)
    os.utime(path, (at_s, at_s))
    return path
