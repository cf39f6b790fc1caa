"""A connection to a server: its host key is proved, and the user is logged in.

``~/.ssh/config`` and the keys in ``~/.ssh`` are not read: the environment alone says how a server is reached.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import asyncssh
from asyncssh.public_key import get_default_certificate_algs, get_default_public_key_algs

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.sftp.session import spell_reason

PREFIX: Final = "GOBBLIN_SFTP_"
AGENT_VARIABLE: Final = "SSH_AUTH_SOCK"

LOGIN_WAIT_S: Final = 30.0
"""For a connection, its keys and the login."""

KEEP_ALIVE_S: Final = 15.0
KEEP_ALIVES_MAX: Final = 3
"""So many questions without an answer end a connection: whoever vanished is noticed within a minute."""

WINDOW_BYTES: Final = 16 << 20
"""What a server may send before it waits for us: with an answer time of 50 ms, 300 MiB/s."""

_CIPHERS: Final = "^aes128-gcm@openssh.com,aes256-gcm@openssh.com"
"""Before asyncssh's own order: with ChaCha20, which is its first, a byte takes half as much of the processor again."""

_TOO_MANY_TRIES: Final = "Too many authentication failures"
"""What OpenSSH says of an agent with more keys than it allows to try."""

_PASSWORD_METHODS: Final = ("password", "keyboard-interactive")


@dataclass(frozen=True, slots=True)
class SftpSettings:
    """The ways to log in.

    ``user``: where a URI names none; None: the user of the process. ``known_hosts``: the file of trusted host keys.
    ``agent``: the socket of an ssh-agent, which is asked where there is no ``key_file``.
    """

    known_hosts: str
    user: str | None = None
    key_file: str | None = None
    key_passphrase: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    agent: str | None = None


def read_sftp_settings(environment: Mapping[str, str], home: Path) -> SftpSettings:
    """From ``GOBBLIN_SFTP_USER``, ``…_KNOWN_HOSTS``, ``…_KEY_FILE`` and so on; empty values count as missing.

    ``home``: in it lies the user's own file of known hosts. RejectedError names the variable.
    """
    names = ("user", "known_hosts", "key_file", "key_passphrase", "password")
    given = {name: environment.get(PREFIX + name.upper()) or None for name in names}
    for name in ("known_hosts", "key_file"):
        path = given[name]
        if path is not None and not Path(path).is_file():
            # A key itself may be written in place of its file.
            where = "there" if name == "key_file" else f"at {path!a}"
            raise _refuse(name, f"expected a file, found none {where}", "Correct the path.")
    if given["key_passphrase"] is not None and given["key_file"] is None:
        raise _refuse("key_file", "expected the key of the passphrase, found none", "Name its file, or unset both.")
    return SftpSettings(
        given["known_hosts"] or str(home / ".ssh" / "known_hosts"),
        given["user"],
        given["key_file"],
        given["key_passphrase"],
        given["password"],
        environment.get(AGENT_VARIABLE) or None,
    )


def _refuse(name: str, message: str, fix: str) -> RejectedError:
    return RejectedError(message, field=PREFIX + name.upper(), hint=fix)


@dataclass(frozen=True, slots=True)
class SftpServer:
    host: str
    port: int
    user: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def known_as(self) -> str:
        """The name in files of known hosts and for ``ssh-keygen``."""
        return self.host if self.port == asyncssh.DEFAULT_PORT else f"[{self.host}]:{self.port}"


class _UnknownKeys(asyncssh.SSHClient):
    """Keeps the host key that is not among the known ones. It is never accepted."""

    def __init__(self) -> None:
        self.found: asyncssh.SSHKey | None = None

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        del host, addr, port
        self.found = key
        return False


async def log_in(server: SftpServer, settings: SftpSettings, option: str) -> asyncssh.SSHClientConnection:
    """RejectedError: the host key is not trusted, the login is refused, or a setting is wrong.

    RetryableError: no connection. ConnectionError: it broke off.
    """
    unknown = _UnknownKeys()
    known = _read_known_hosts(settings)
    try:
        async with asyncio.timeout(LOGIN_WAIT_S), _open_keys(settings) as keys:
            return await asyncssh.connect(
                server.host,
                server.port,
                config=None,
                client_factory=lambda: unknown,
                username=server.user,
                known_hosts=known,
                server_host_key_algs=_order_host_keys(server, known),
                x509_trusted_certs=None,
                x509_trusted_cert_paths=(),
                client_keys=keys or None,  # without any it would look for some in the user's folder
                agent_path=None,
                password=settings.password,
                preferred_auth=_list_methods(settings, has_keys=bool(keys)),
                gss_host=None,
                encryption_algs=_CIPHERS,
                compression_algs=["none"],
                keepalive_interval=KEEP_ALIVE_S,
                keepalive_count_max=KEEP_ALIVES_MAX,
                window=WINDOW_BYTES,
            )
    except (asyncssh.HostKeyNotVerifiable, asyncssh.KeyExchangeFailed) as error:
        raise _refuse_host(server, settings, known, unknown.found, error) from error
    except asyncssh.PermissionDenied as error:
        raise _refuse_login(server, settings, option) from error
    except TimeoutError as error:
        raise RetryableError(f"{server} did not let us in within {LOGIN_WAIT_S:.0f} s", hint="Is it up?") from error
    except (asyncssh.DisconnectError, OSError) as error:
        if isinstance(error, asyncssh.DisconnectError) and _TOO_MANY_TRIES in error.reason:
            raise _refuse_login(server, settings, option) from error
        raise ConnectionError(_reason_of(error)) from error
    except ValueError as error:
        raise RejectedError(
            f"the login to {server} can't be begun: {type(error).__name__}",
            field=option,
            hint=f"Look at {PREFIX}USER, and whether the user of this process has a name.",
        ) from error


def _reason_of(error: asyncssh.DisconnectError | OSError) -> str:
    said = error.reason if isinstance(error, asyncssh.DisconnectError) else error.strerror or str(error)
    return f"{type(error).__name__} ({spell_reason(said)})" if said else type(error).__name__


@asynccontextmanager
async def _open_keys(settings: SftpSettings) -> AsyncIterator[Sequence[asyncssh.SSHKeyPair]]:
    """The key of the file, or those of an agent, which signs as long as the block runs."""
    if settings.key_file is not None:
        yield await asyncio.to_thread(_load_key, settings.key_file, settings.key_passphrase)
        return
    if settings.agent is None:
        yield []
        return
    try:
        agent = await asyncssh.connect_agent(settings.agent)
    except OSError:
        # An agent that is gone leaves its variable behind.
        yield []
        return
    async with agent:
        try:
            keys = list(await agent.get_keys())
        except ValueError as error:
            raise RejectedError(
                "the ssh-agent does not tell its keys", field=AGENT_VARIABLE, hint=f"Unset it, or set {PREFIX}KEY_FILE."
            ) from error
        yield keys


def _load_key(key_file: str, passphrase: str | None) -> Sequence[asyncssh.SSHKeyPair]:
    """The key with the certificate that lies beside it, if there is one."""
    try:
        return asyncssh.load_keypairs(key_file, passphrase)
    except OSError as error:
        raise RejectedError(
            f"{key_file!a} can't be read: {error.strerror}",
            field=f"{PREFIX}KEY_FILE",
            hint="Correct its mode, or path.",
        ) from error
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        if isinstance(error, asyncssh.KeyEncryptionError) or "assphrase" in str(error):
            raise RejectedError(
                f"the passphrase of the key {key_file!a} is {'missing' if passphrase is None else 'wrong'}",
                field=f"{PREFIX}KEY_PASSPHRASE",
                hint="Set it, or leave the key to an ssh-agent.",
            ) from error
        raise RejectedError(
            f"{key_file!a} is no private key that can be read",
            field=f"{PREFIX}KEY_FILE",
            hint="Name a private key in the format of OpenSSH or PEM.",
        ) from error


def _order_host_keys(server: SftpServer, known: asyncssh.SSHKnownHosts) -> list[str]:
    """The kinds of keys that are known of the server, and then all others: a server without one of them says its own.

    asyncssh would ask for the known kinds only, and such a server breaks off without a reason.
    """
    trusted, authorities, *_others = _match(server, known)
    kinds = get_default_certificate_algs() if authorities else []
    kinds += [kind for key in trusted for kind in key.sig_algorithms]
    return [kind.decode() for kind in dict.fromkeys([*kinds, *get_default_public_key_algs()])]


def _match(server: SftpServer, known: asyncssh.SSHKnownHosts) -> Sequence[Sequence[Any]]:
    """Trusted keys, trusted authorities, and what is revoked."""
    return known.match(server.host, "", None if server.port == asyncssh.DEFAULT_PORT else server.port)


def _list_methods(settings: SftpSettings, *, has_keys: bool) -> list[str]:
    with_key = ["publickey"] if has_keys else []
    return [*with_key, *(_PASSWORD_METHODS if settings.password is not None else ())] or ["none"]


def _read_known_hosts(settings: SftpSettings) -> asyncssh.SSHKnownHosts:
    """The hosts that are trusted; nobody, where the user has no such file."""
    if not Path(settings.known_hosts).is_file():
        return asyncssh.import_known_hosts("")
    try:
        return asyncssh.read_known_hosts(settings.known_hosts)
    except (OSError, ValueError) as error:
        raise RejectedError(
            f"{settings.known_hosts!a} can't be read as a file of known hosts: {type(error).__name__}",
            field=f"{PREFIX}KNOWN_HOSTS",
            hint="Correct it.",
        ) from error


def _refuse_host(
    server: SftpServer,
    settings: SftpSettings,
    known: asyncssh.SSHKnownHosts,
    found: asyncssh.SSHKey | None,
    error: asyncssh.DisconnectError,
) -> GobblinError:
    field = f"{PREFIX}KNOWN_HOSTS"
    trusted, authorities, *_others = _match(server, known)
    if found is None:
        return RejectedError(
            f"no host key of {server} can be trusted: {spell_reason(error.reason)}",
            field=field,
            hint=f"Look which keys {settings.known_hosts!a} has of it, and ask who runs the server.",
        )
    key = f"{found.get_algorithm()} {found.get_fingerprint()}"
    if trusted or authorities:
        return RejectedError(
            f"the host key of {server} is {key}, and {settings.known_hosts!a} has another one",
            field=field,
            hint="Somebody may pretend to be the server. If whoever runs it says that the key is new: "
            f"ssh-keygen -R '{server.known_as}' -f {settings.known_hosts}, and then ssh-keyscan as for a new server.",
        )
    return RejectedError(
        f"the host key of {server}, {key}, is not known",
        field=field,
        hint="Compare it with what the server's owner says, and then: "
        f"ssh-keyscan -p {server.port} {server.host} >> {settings.known_hosts}",
    )


def _refuse_login(server: SftpServer, settings: SftpSettings, option: str) -> RejectedError:
    tried = [
        name
        for name, is_given in (
            (f"the key of {PREFIX}KEY_FILE", settings.key_file is not None),
            (f"the agent of {AGENT_VARIABLE}", settings.key_file is None and settings.agent is not None),
            (f"the password of {PREFIX}PASSWORD", settings.password is not None),
        )
        if is_given
    ]
    return RejectedError(
        f"{server} does not let the user {server.user!a} in; tried: {', '.join(tried) or 'nothing, as nothing is set'}",
        field=option,
        hint=f"Set {PREFIX}KEY_FILE, an ssh-agent, or {PREFIX}PASSWORD; name the user in the URI or as {PREFIX}USER.",
    )
