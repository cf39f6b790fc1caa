"""asyncssh's SFTP server as a program, with faults that a test orders: ``python sftp_program.py '<orders as JSON>'``.

``listing``: "bare" gives names without attributes, "climbing" a name with slashes, "foreign" one that is not UTF-8.
``reads``: "never" does not answer them. ``subsystem``: false has no SFTP.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import asyncssh

ORDERS: dict[str, Any] = {}


class Server(asyncssh.SSHServer):
    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return password == ORDERS["password"]


class Files(asyncssh.SFTPServer):
    async def scandir(self, path: bytes) -> AsyncIterator[asyncssh.SFTPName]:
        async for each in super().scandir(path):
            match ORDERS.get("listing"):
                case "bare":
                    yield asyncssh.SFTPName(each.filename, each.longname, asyncssh.SFTPAttrs())
                case "climbing" if each.filename not in {b".", b".."}:
                    yield asyncssh.SFTPName(b"../../" + each.filename, each.longname, each.attrs)
                case "foreign" if each.filename not in {b".", b".."}:
                    yield asyncssh.SFTPName(each.filename + b"\xff", each.longname, each.attrs)
                case _:
                    yield each

    async def read(self, file_obj: object, offset: int, size: int) -> bytes:
        if ORDERS.get("reads") == "never":
            await asyncio.Event().wait()
        found = super().read(file_obj, offset, size)
        content: bytes = await found if asyncio.iscoroutine(found) else found
        return content


async def serve() -> None:
    folder = ORDERS["folder"]
    host_key = asyncssh.read_private_key(f"{folder}/host_key")
    authorized = asyncssh.read_authorized_keys(f"{folder}/authorized_keys")
    listening = await asyncssh.listen(
        "127.0.0.1",
        ORDERS["port"],
        config=None,
        server_factory=Server,
        server_host_keys=[host_key],
        authorized_client_keys=authorized,
        sftp_factory=Files if ORDERS.get("subsystem", True) else None,
    )
    # Now that all is imported: the ordinary user may not read this interpreter's files.
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(ORDERS["gid"], ORDERS["gid"], ORDERS["gid"])
        os.setresuid(ORDERS["uid"], ORDERS["uid"], ORDERS["uid"])
    await listening.wait_closed()


if __name__ == "__main__":
    ORDERS.update(json.loads(sys.argv[1]))
    asyncio.run(serve())
