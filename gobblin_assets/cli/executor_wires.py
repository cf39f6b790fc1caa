"""The wires of an executor: tickets that come over Kafka or https, for a service that does not reach the log."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click

from gobblin_assets.cli.lazy_commands import example
from gobblin_assets.cli.output import say
from gobblin_assets.errors import RejectedError
from gobblin_assets.kafka.connection import read_cluster
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.executor_heartbeat import HeardHeartbeat
from gobblin_assets.run.log import open_log
from gobblin_assets.run.own_process import StopRequest, heed_stop_signals
from gobblin_assets.run.runner import owner_text
from gobblin_assets.run.stores import Stores

_STOP_WAIT_S: Final = 30.0
_FILE: Final = click.Path(path_type=Path, dir_okay=False)


@dataclass(frozen=True, slots=True)
class WireChoice:
    """The wires that a command was asked for: the name of a Kafka connection, and HOST:PORT with PEM files."""

    kafka: str | None
    rest: str | None
    certificate: Path | None
    key: Path | None
    client_ca: Path | None


def wire_options(command: Callable[..., None]) -> Callable[..., None]:
    """Options of a command, which is given them by their names, and passes them to ``read_wire_choice``."""
    options = (
        click.option("--kafka", help="Take tickets from a topic, and write reports: the name of a Kafka connection."),
        click.option("--rest", help="Take tickets over https: HOST:PORT to listen on."),
        click.option("--rest-certificate", type=_FILE, help="Of this server, in PEM."),
        click.option("--rest-key", type=_FILE, help="The key of that certificate, in PEM, without a password."),
        click.option("--rest-client-ca", type=_FILE, help="The authority that signs services' certificates, in PEM."),
    )
    return reduce(lambda made, option: option(made), reversed(options), command)


@contextmanager
def serve_wires(choice: WireChoice, name: str, owner: str, stores: Stores) -> Iterator[None]:
    """Serve the wires while the block runs. RejectedError: an option or a variable is missing or wrong."""
    with ExitStack() as stack:
        if choice.rest is not None:
            stack.enter_context(_serve_rest(choice, choice.rest, name, stores))
        if choice.kafka is not None:
            stack.enter_context(_serve_kafka(choice.kafka, name, owner, stores))
        yield


@click.command("wire", epilog=example("executor wire --name local --kafka main"))
@click.option("--name", required=True, help="The executor's name; several processes of one name share its tickets.")
@wire_options
def wire(name: str, **wires: Any) -> None:
    """Bring tickets into the log that come over Kafka or https.

    It reports, and runs no job: for executors that take tickets from the log by themselves, such as Dagster's sensors.
    Until SIGTERM or Ctrl-C.
    """
    choice, stop = read_wire_choice(wires), StopRequest()
    if choice.kafka is None and choice.rest is None:
        raise RejectedError("expected --kafka or --rest, found neither", field="--kafka", hint="Give one of them.")
    with (
        open_log(say) as log,
        heed_stop_signals(say, stop),
        serve_wires(choice, name, owner_text(), log.stores),
    ):
        while not stop.wait(1.0):
            pass


def read_wire_choice(given: dict[str, Any]) -> WireChoice:
    """Of what click gave for ``wire_options``. RejectedError: some of the files for ``--rest`` are missing."""
    files = {name: given[f"rest_{name}"] for name in ("certificate", "key", "client_ca")}
    if given["rest"] is not None and (missing := [name for name, path in files.items() if path is None]):
        raise RejectedError(
            "expected a PEM file, found none",
            field=f"--rest-{missing[0].replace('_', '-')}",
            hint="The inbox is always served by https, and only to services with a certificate.",
        )
    return WireChoice(given["kafka"], given["rest"], **files)


def list_wire_words(choice: WireChoice) -> list[str]:
    """The options by which another command has the same wires."""
    given = {
        "--kafka": choice.kafka,
        "--rest": choice.rest,
        "--rest-certificate": choice.certificate,
        "--rest-key": choice.key,
        "--rest-client-ca": choice.client_ca,
    }
    return [word for name, value in given.items() if value is not None for word in (name, str(value))]


@contextmanager
def _serve_kafka(connection: str, name: str, owner: str, stores: Stores) -> Iterator[None]:
    # Attempts need no client of Kafka's for this.
    from gobblin_assets.tickets.kafka_wire import KafkaWire, KafkaWireOptions  # noqa: PLC0415  see above

    is_over = threading.Event()

    def list_beats() -> Sequence[HeardHeartbeat]:
        return [each for each in stores.heartbeats.list_heartbeats() if each.beat.executor == name]

    options = KafkaWireOptions(name, owner, stores.tickets.find_log_id())
    cluster = read_cluster(connection, os.environ)
    made = KafkaWire(options, cluster, stores.wires, stores.tickets, SystemClock(), say, list_beats)
    thread = threading.Thread(target=made.carry, args=(is_over.wait,), name="wire", daemon=True)
    thread.start()
    say(f"executor {name}: tickets come over Kafka, by the connection {connection}")
    try:
        yield
    finally:
        is_over.set()
        thread.join(_STOP_WAIT_S)


@contextmanager
def _serve_rest(choice: WireChoice, address: str, name: str, stores: Stores) -> Iterator[None]:
    if missing := [each for each in ("starlette", "uvicorn") if find_spec(each) is None]:
        raise RejectedError(
            f"{', '.join(missing)} is not installed",
            field="--rest",
            hint="Run `pip install gobblin-assets[service]`.",
        )
    # The web framework is imported after it is known that it is there.
    from gobblin_assets.tickets.rest.inbox_api import ServedInbox, make_inbox_api  # noqa: PLC0415  the extra may be missing
    from gobblin_assets.tickets.rest.inbox_server import (  # noqa: PLC0415  the same
        InboxAddress,
        parse_rest_address,
        serve_inbox,
    )

    host, port = parse_rest_address(address)
    if choice.certificate is None or choice.key is None or choice.client_ca is None:
        raise ValueError("the files are checked where the options are read")
    where = InboxAddress(host, port, choice.certificate, choice.key, choice.client_ca)
    app = make_inbox_api(ServedInbox(name, stores.tickets, stores.heartbeats))
    with serve_inbox(app, where) as bound:
        say(f"executor {name}: tickets come over https://{host}:{bound}")
        yield
