"""versitygw, a gateway that speaks S3 over a directory. Go builds it once, into the user's cache folder."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from demo.server_process import serve
from gobblin_assets.errors import RejectedError

VERSITYGW: Final = "github.com/versity/versitygw/cmd/versitygw"
VERSITYGW_VERSION: Final = "v1.8.0"
REGION: Final = "us-east-1"

_BUILD_S_MAX: Final = 900.0
_LOG_CHARACTERS_MAX: Final = 3_000


@contextmanager
def run_gateway(folder: Path, access_key_id: str, secret: str, options: Sequence[str] = ()) -> Iterator[int]:
    """Serve ``folder/data`` for the block; gives the port."""
    program = build_versitygw()
    (folder / "data").mkdir(parents=True, exist_ok=True)
    login = {"ROOT_ACCESS_KEY": access_key_id, "ROOT_SECRET_KEY": secret}

    def command(port: int) -> list[str]:
        said = ("--keep-alive", "--quiet", "--region", REGION, "--port", f"127.0.0.1:{port}", *options)
        return [str(program), *said, "posix", str(folder / "data")]

    with serve(command, folder / "log", login) as port:
        yield port


def build_versitygw() -> Path:
    """The program, built once. RejectedError where there is no Go, and where Go can't build it."""
    return build_by_go(VERSITYGW, VERSITYGW_VERSION)


def build_by_go(package: str, version: str) -> Path:
    """A program that Go builds once into the user's cache folder: no other version than this one."""
    name = package.rpartition("/")[2]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gobblin-assets" / "go"
    program = cache / f"{name}-{version}"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise RejectedError(f"building {name} needs Go, found none", field="PATH", hint="Install Go 1.24 or newer.")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            work = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=cache))
            done = subprocess.run(  # noqa: S603  fixed words
                [go, "install", f"{package}@{version}"],
                env={**os.environ, "GOBIN": str(work)},
                capture_output=True,
                check=False,
                timeout=_BUILD_S_MAX,
            )
            if done.returncode != 0:
                said = done.stderr.decode(errors="replace")[-_LOG_CHARACTERS_MAX:]
                hint = "Go's module proxy must be reachable."
                raise RejectedError(f"{name} could not be built:\n{said}", field="go", hint=hint)
            # It appears complete, by a rename.
            (work / name).rename(program)
            work.rmdir()
    return program
