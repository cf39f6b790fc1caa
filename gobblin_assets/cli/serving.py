"""The command that serves the service: service serve."""

import ipaddress
import os
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypeVar

import click

from gobblin_assets.cli.lazy_commands import example
from gobblin_assets.cli.output import say
from gobblin_assets.errors import OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.run.own_process import StopRequest, heed_stop_signals
from gobblin_assets.service.access import (
    EVERYTHING_ALLOWED,
    AccessFile,
    AccessRules,
    UnknownUserError,
    User,
)
from gobblin_assets.service.forgetting import KEPT_DAYS_DEFAULT
from gobblin_assets.service.roles import NodeRole, parse_roles
from gobblin_assets.settings import read_settings

T = TypeVar("T")

_EXTRA: Final = ("fastapi", "jinja2", "jsonschema", "uvicorn")
_EVERYBODY: Final = "local"
_BACKLOG: Final = 128
_LOOK_EVERY_S: Final = 3600.0
_AWAY_S_MAX: Final = 60.0
_TRY_EVERY_S: Final = 1.0
_LOOPBACK_NAME: Final = "localhost"


@click.command(epilog=example("service serve --topology topology.yaml --no-auth"))
@click.option(
    "--topology",
    "topology_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Nodes and executors, in YAML; a change is seen at once. Default: those in the database.",
)
@click.option(
    "--pack",
    "packs",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A pack of job templates to publish at the start: a zip file or a directory; may be repeated.",
)
@click.option("--compiler", default="multi_hop", show_default=True, help="What finds jobs for flows.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on: one of this machine.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    metavar="ROLE,…",
    help="What this node does: scheduler, orchestrator, monitor, api. Default: all.",
)
@click.option(
    "--public-name",
    "public_names",
    multiple=True,
    help="A name by which a balancer on this machine is asked, which passes the header Host on; may be repeated.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0: any that is free.")
@click.option("--no-auth", is_flag=True, help="Ask nobody who they are: everybody may do everything.")
@click.option(
    "--access",
    "access_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Users, their rights and their tokens, in YAML. A change is seen at once.",
)
@click.option(
    "--tickets-kept-days",
    "kept_days",
    type=click.FloatRange(min=1),
    default=KEPT_DAYS_DEFAULT,
    show_default=True,
    help="So long after a job's end, executors' logs forget its tickets and reports; its status stays.",
)
def serve(
    topology_file: Path | None,
    packs: tuple[Path, ...],
    compiler: str,
    host: str,
    roles: tuple[str, ...],
    public_names: tuple[str, ...],
    port: int,
    no_auth: bool,  # noqa: FBT001  an option that click passes by name
    access_file: Path | None,
    kept_days: float,
) -> None:
    """Serve the REST API and the pages, until SIGTERM or Ctrl-C. Executors are started by `executor serve`."""
    _require_extra()
    # The web framework and the compiler are imported after it is known that they are there.
    from gobblin_assets.service.api.request_guards import LOOPBACK_NAMES  # noqa: PLC0415  the extra may be missing
    from gobblin_assets.service.api.request_parts import ServedParts  # noqa: PLC0415  the same
    from gobblin_assets.service.guarded_alerts import GuardedAlerts  # noqa: PLC0415  the same
    from gobblin_assets.service.guarded_executors import GuardedExecutors  # noqa: PLC0415  the same
    from gobblin_assets.service.guarded_flows import GuardedFlows  # noqa: PLC0415  the same
    from gobblin_assets.service.guarded_jobs import GuardedJobs  # noqa: PLC0415  the same
    from gobblin_assets.service.guarded_logs import GuardedLogs  # noqa: PLC0415  the same
    from gobblin_assets.service.guarded_packs import GuardedPacks  # noqa: PLC0415  the same
    from gobblin_assets.service.guarded_probes import GuardedProbes  # noqa: PLC0415  the same
    from gobblin_assets.service.opening import open_service  # noqa: PLC0415  the same
    from gobblin_assets.service.pack_files import read_pack_at  # noqa: PLC0415  the same
    from gobblin_assets.service.ui.web_server import serve_requests  # noqa: PLC0415  the same

    taken = parse_roles(roles)
    rules, identify = _read_access(access_file, no_auth=no_auth)
    given = [read_pack_at(path) for path in packs]
    with ExitStack() as stack:
        listening = stack.enter_context(_listen(host, port)) if NodeRole.API in taken else None
        opened = _enter(
            stack,
            lambda: open_service(
                read_settings(), topology_file, given, compiler, os.environ, say, kept_days=kept_days, roles=taken
            ),
        )
        if listening is None:
            _await_stop(taken)
            return
        flows = GuardedFlows(opened.flows, rules)
        parts = ServedParts(
            flows=flows,
            probes=GuardedProbes(opened.probes, flows, rules),
            jobs=GuardedJobs(opened.jobs, flows, opened.logs, rules, lambda: opened.topology_catalog.topology),
            executors=GuardedExecutors(opened.executors, rules),
            logs=GuardedLogs(opened.logs, lambda: opened.topology_catalog.topology, rules, opened.flows.writes),
            alerts=GuardedAlerts(opened.alerts, opened.executors, rules),
            topologies=opened.topology,
            rules=rules,
            packs=GuardedPacks(opened.packs, rules, opened.flows.writes),
            identify=identify,
            asks_for_tokens=not no_auth,
            measure=lambda: {
                "flows": opened.catalog.metrics,
                "packs": opened.packs.metrics,
                "topology": opened.topology_catalog.metrics,
            },
            measure_age_s=opened.catalog.measure_age_s,
        )
        address, bound_port, *_ = listening.getsockname()
        shown = f"[{address}]" if ":" in address else address
        say(f"The service answers on http://{shown}:{bound_port}/")
        serve_requests(parts, listening, {*LOOPBACK_NAMES, address, *map(str.lower, public_names)})


def _enter(stack: ExitStack, make: Callable[[], AbstractContextManager[T]]) -> T:
    """Begin what ``make`` makes, and end it with the stack. A database that is away for a moment is waited for."""
    until_s, is_told = time.monotonic() + _AWAY_S_MAX, False
    while True:
        try:
            return stack.enter_context(make())
        except (RetryableError, OutcomeUnknownError) as error:
            if time.monotonic() >= until_s:
                raise
            if not is_told:
                said = " ".join(str(error).split())
                say(f"{said} The service tries again for {_AWAY_S_MAX:.0f} s.")
                is_told = True
        time.sleep(_TRY_EVERY_S)


def _await_stop(roles: frozenset[NodeRole]) -> None:
    """Until SIGTERM or Ctrl-C, while the loops of a node without requests run."""
    stop = StopRequest()
    with heed_stop_signals(lambda _line: None, stop):
        say(f"The service runs as {', '.join(sorted(roles))}, and answers no requests.")
        while not stop.wait(_LOOK_EVERY_S):
            pass


def _require_extra() -> None:
    missing = [name for name in _EXTRA if find_spec(name) is None]
    if missing:
        raise RejectedError(
            f"{', '.join(missing)} is not installed",
            field="service serve",
            hint="Run `pip install gobblin-assets[service]`.",
        )


def _read_access(
    access_file: Path | None, *, no_auth: bool
) -> tuple[Callable[[], AccessRules], Callable[[str | None], User]]:
    """The rules of now, and who asks by a token."""
    if no_auth == (access_file is not None):
        raise RejectedError(
            "expected either --access FILE or --no-auth",
            field="--access",
            hint="With --no-auth, everybody who reaches this machine's own address may do everything.",
        )
    if access_file is None:
        everybody = User(_EVERYBODY, frozenset())
        return lambda: EVERYTHING_ALLOWED, lambda _token: everybody
    file, clock = AccessFile(access_file), SystemClock()
    file.read()

    def identify(token: str | None) -> User:
        if token is None:
            raise UnknownUserError(
                "the request has no token", field="authorization", hint="Send the header `Authorization: Bearer TOKEN`."
            )
        return file.read().user_of(token, clock.now())

    return file.read, identify


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens on an address of this machine alone."""
    address = "127.0.0.1" if host == _LOOPBACK_NAME else host
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        raise RejectedError(
            f"expected an address, found {host[:100]!a}", field="--host", hint="Write 127.0.0.1, or ::1."
        ) from None
    if not found.is_loopback:
        raise RejectedError(
            f"{address} can be reached from other machines, and this release has no encrypted log-in",
            field="--host",
            hint="Listen on 127.0.0.1, and let people in by `ssh -L 8080:localhost:8080 HOST`.",
        )
    family = socket.AF_INET6 if found.version == 6 else socket.AF_INET
    # Named as TCP, its connections send without a delay; asyncio sets that for no other socket.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise RejectedError(
            f"the port {port} of {address} can't be had: {error.strerror}",
            field="--port",
            hint="Choose another one; 0 takes any that is free.",
        ) from None
    return listening
