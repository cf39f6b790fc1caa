"""versitygw, a gateway that speaks S3 over a directory. Go builds it once, into the user's cache folder."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from demo.go_programs import build_go_program
from demo.server_process import serve

VERSITYGW: Final = "github.com/versity/versitygw/cmd/versitygw"
VERSITYGW_VERSION: Final = "v1.8.0"
REGION: Final = "us-east-1"


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
    return build_go_program(VERSITYGW, VERSITYGW_VERSION)
