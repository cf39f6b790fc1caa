"""Decryption and encryption by the program ``gpg``. Its output counts only once it has ended with 0.

The passphrase goes from an environment variable to the program through a pipe of its own: never as an argument, into a
file, or into the program's environment.
"""

import os
import re
import select
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from typing import IO, Final

from pydantic import Field, field_validator

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.jobs.copy.converters.compression import rename_by
from gobblin_assets.jobs.copy.converters.converter_port import (
    CHUNK_BYTES,
    ByteSource,
    LimitedSource,
    look_for_stop,
    refuse_content,
)
from gobblin_assets.spec.spec_errors import read_extension_options
from gobblin_assets.spec.spec_model import SpecModel

PROGRAM: Final = "gpg"

_COMMAND: Final = ("--batch", "--no-tty", "--quiet", "--no-options", "--status-fd", "2", "--pinentry-mode", "loopback")
_ENDINGS: Final = ((".gpg", ""), (".pgp", ""))
_DECRYPTED: Final = b"[GNUPG:] DECRYPTION_OKAY"
_STATUS: Final = b"[GNUPG:]"
PASSPHRASE_BYTES_MAX: Final = 2_048

SILENT_MAX_S: Final = 300.0
"""A program that neither takes nor gives anything for so long waits for what will not come."""

LOOK_EVERY_S: Final = 0.2
"""Whoever waits for the program looks so often whether the work was stopped."""

_SAID_BYTES_MAX: Final = 65_536
_PIPE_BYTES: Final = 65_536
_SHOWN_LENGTH_MAX: Final = 300
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FINGERPRINT: Final = re.compile(r"[0-9A-Fa-f]{40}|[0-9A-Fa-f]{64}")
# The program finds its agent, its home and the words of its messages by these; it needs no other.
_ENVIRONMENT: Final = ("HOME", "PATH", "GNUPGHOME", "TMPDIR", "USER", "LOGNAME")


class GpgOptions(SpecModel):
    """Options of decryption. ``homedir``: the program's directory of keys. ``passphrase_env``: the variable that holds
    the passphrase.

    ``bytes_max``: a file that becomes larger is refused; without it, it may fill the disk.
    """

    homedir: str | None = None
    passphrase_env: str | None = None
    bytes_max: int | None = Field(None, ge=1)


class GpgEncryptOptions(GpgOptions):
    """Options of encryption. ``recipients``: fingerprints of keys that may decrypt. Without any, the passphrase alone
    encrypts.
    """

    recipients: tuple[str, ...] = ()

    @field_validator("recipients")
    @classmethod
    def _whole_fingerprints(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if not all(_FINGERPRINT.fullmatch(each) for each in given):
            raise ValueError("a key's whole fingerprint, of 40 or 64 hexadecimal digits")
        return given


@dataclass(frozen=True, slots=True)
class Gpg:
    """The StreamConverter by the program. ``arguments``: what the program is to do. ``decrypts``: it removes the
    ending, and says that it decrypted.
    """

    options: GpgOptions
    arguments: tuple[str, ...]
    decrypts: bool

    def rename(self, name: str) -> str | None:
        return rename_by(_ENDINGS, name) if self.decrypts else f"{name}{_ENDINGS[0][0]}"

    def prepare(self) -> None:
        if shutil.which(PROGRAM) is None:
            raise RejectedError(
                "the program gpg is not installed", field="converters", hint="Install it (Debian: apt install gnupg)."
            )
        self._read_passphrase()

    @contextmanager
    def convert(self, source: ByteSource, path: str) -> Iterator[ByteSource]:
        with tempfile.TemporaryFile() as said:
            process = self._start(said)
            running = _Running(process, source, path, said, decrypts=self.decrypts)
            try:
                yield LimitedSource(running, path, self.options.bytes_max)
            finally:
                running.close()

    def _start(self, said: IO[bytes]) -> "subprocess.Popen[bytes]":
        secret = self._read_passphrase()
        command = [PROGRAM, *_COMMAND]
        if self.options.homedir is not None:
            command += ["--homedir", self.options.homedir]
        descriptors: list[int] = []
        if secret is not None:
            descriptors = list(os.pipe())
            command += ["--passphrase-fd", str(descriptors[0])]
        try:
            process = subprocess.Popen(  # noqa: S603  the program's own name, and options that were checked
                [*command, *self.arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                pass_fds=descriptors[:1],
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | {"LC_ALL": "C.UTF-8"},
                bufsize=0,
            )
            if secret is not None:
                # Less than a pipe holds, so that nobody waits.
                with suppress(BrokenPipeError):
                    os.write(descriptors[1], secret)
        except OSError as error:
            raise RetryableError(f"can't start gpg: {error.strerror}") from error
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return process

    def _read_passphrase(self) -> bytes | None:
        """Errors name the variable, never its value."""
        name = self.options.passphrase_env
        if name is None:
            return None
        found = os.environb.get(name.encode())
        if not found or len(found) > PASSPHRASE_BYTES_MAX or b"\n" in found:
            raise RejectedError(
                f"expected a passphrase of one line in the environment variable {name}",
                field="passphrase_env",
                hint="Set the variable for the processes that copy.",
            )
        return found + b"\n"


class _Running:
    """One run of the program: a thread feeds it, while its output is read."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", source: ByteSource, path: str, said: IO[bytes], *, decrypts: bool
    ) -> None:
        self._process, self._source, self._path, self._said = process, source, path, said
        self._decrypts = decrypts
        self._fault: BaseException | None = None
        if process.stdin is None or process.stdout is None:
            raise ValueError("a process without pipes")
        self._input, self._output = process.stdin, process.stdout
        self._ready = select.poll()
        self._ready.register(self._output, select.POLLIN)
        self._waits_for_source, self._active_at = True, time.monotonic()
        # The source of the program may be another one, whose reader looks for the stop too.
        self._feeder = threading.Thread(target=copy_context().run, args=(self._feed,), name="gpg-input", daemon=True)
        self._feeder.start()

    def read(self, size: int, /) -> bytes:
        self._await(lambda: bool(self._ready.poll(LOOK_EVERY_S * 1_000)))
        content = self._output.read(size)
        if content:
            return content
        self._finish()
        return b""

    def close(self) -> None:
        """After this nothing of it runs, and nothing reads from the source."""
        self._process.kill()
        self._process.wait()
        self._feeder.join()
        self._output.close()

    def _feed(self) -> None:
        try:
            with self._input:
                while content := self._source.read(CHUNK_BYTES):
                    self._waits_for_source, self._active_at = False, time.monotonic()
                    rest = memoryview(content)
                    while rest:
                        rest = rest[self._input.write(rest[:_PIPE_BYTES]) :]
                        self._active_at = time.monotonic()
                    self._waits_for_source = True
        except BrokenPipeError:
            return  # the program ended, and its exit status says why
        except BaseException as error:  # noqa: BLE001  raised again by who reads the output
            self._fault = error
            # Nothing that was made of a part of the source may look whole.
            self._process.kill()
        finally:
            self._waits_for_source, self._active_at = False, time.monotonic()

    def _await(self, is_ready: Callable[[], bool]) -> None:
        """Wait until it is, but neither after a stop nor for a program that does nothing."""
        since = time.monotonic()
        while not is_ready():
            look_for_stop()
            if not self._waits_for_source and time.monotonic() - max(since, self._active_at) > SILENT_MAX_S:
                self._process.kill()
                raise RetryableError(
                    f"{self._path}: gpg has done nothing for {SILENT_MAX_S:g} s",
                    hint="Does it, or its agent, wait for a person or a card? `gpgconf --kill gpg-agent` ends it.",
                    path=self._path,
                )

    def _has_ended(self) -> bool:
        try:
            self._process.wait(LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _finish(self) -> None:
        self._await(self._has_ended)
        status = self._process.wait()
        self._feeder.join()
        if self._fault is not None:
            raise self._fault
        self._said.seek(0)
        lines = self._said.read(_SAID_BYTES_MAX).splitlines()
        if status != 0:
            raise refuse_content(
                self._path,
                f"gpg ended with {status}: {_show(lines)}",
                "Look at the keys, the passphrase and the file; `gpg --decrypt` by hand says more.",
            )
        if self._decrypts and _DECRYPTED not in lines:
            raise refuse_content(self._path, "gpg found nothing encrypted in it", "Encrypt it, or exclude it.")


def open_gpg_decrypt(options: Mapping[str, object]) -> Gpg:
    read = read_extension_options(GpgOptions, options)
    _check_variable(read)
    return Gpg(read, ("--decrypt",), decrypts=True)


def open_gpg_encrypt(options: Mapping[str, object]) -> Gpg:
    read = read_extension_options(GpgEncryptOptions, options)
    _check_variable(read)
    if bool(read.recipients) == (read.passphrase_env is not None):
        raise RejectedError(
            "expected recipients or a passphrase, found both or neither",
            field="recipients",
            hint="Write the fingerprints of the keys, or passphrase_env.",
        )
    if not read.recipients:
        return Gpg(read, ("--symmetric", "--cipher-algo", "AES256"), decrypts=False)
    # A whole fingerprint names one key; who wrote it trusts it.
    return Gpg(read, ("--trust-model", "always", *_recipients(read.recipients), "--encrypt"), decrypts=False)


def _check_variable(options: GpgOptions) -> None:
    """What was found may be the passphrase itself, and is not repeated."""
    if options.passphrase_env is not None and not _VARIABLE.fullmatch(options.passphrase_env):
        raise RejectedError(
            "expected the name of an environment variable",
            field="passphrase_env",
            hint="Put the passphrase into a variable, and write the variable's name, such as GPG_PASSPHRASE.",
        )


def _recipients(fingerprints: Sequence[str]) -> list[str]:
    return [part for each in fingerprints for part in ("--recipient", each)]


def _show(lines: Sequence[bytes]) -> str:
    """The lines that were meant for people."""
    words = [line.decode(errors="replace") for line in lines if line and not line.startswith(_STATUS)]
    return "; ".join(words)[:_SHOWN_LENGTH_MAX] or "it said nothing"
