"""Keys of the program ``gpg``, in a directory of their own."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Keys:
    """A secret key that the passphrase protects."""

    homedir: str
    fingerprint: str
    passphrase: str = "a secret of these tests"


@contextmanager
def open_keys() -> Iterator[Keys]:
    """The path is short: the socket of gpg's agent lies there. The agent ends with the directory."""
    if shutil.which("gpg") is None:
        pytest.skip("the program gpg is not installed, and no package index has it: apt install gnupg")
    with tempfile.TemporaryDirectory(prefix="gpg-") as homedir:
        made = ["--quick-generate-key", "copies@example.com", "future-default", "default", "never"]
        secret = ["--pinentry-mode", "loopback", "--passphrase", Keys.passphrase]
        _gpg(homedir, *secret, *made)
        listed = _gpg(homedir, "--with-colons", "--list-keys")
        fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))
        try:
            yield Keys(homedir, fingerprint)
        finally:
            subprocess.run(["gpgconf", "--homedir", homedir, "--kill", "all"], check=True)


def store(content: bytes, homedir: str) -> bytes:
    """A message that anybody can read."""
    command = ["gpg", "--batch", "--quiet", "--homedir", homedir, "--store"]
    return subprocess.run(command, check=True, capture_output=True, input=content).stdout


def look_at_programs(homedir: str) -> list[bytes]:
    """Command line and environment of each gpg that works there, but not of the agent, which serves all of them."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            if command.startswith(b"gpg\0") and homedir.encode() in command:
                found.append(command + (path / "environ").read_bytes())
        except OSError:
            continue
    return found


def _gpg(homedir: str, *arguments: str) -> str:
    command = ["gpg", "--batch", "--quiet", "--homedir", homedir, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
