"""The command that becomes Dagster, after it has checked the port and the job files that `dagster dev` needs."""

import errno
import json
import os
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from gobblin_assets.cli.answering import answer_beside
from gobblin_assets.cli.executor_wires import list_wire_words, read_wire_choice, wire_options
from gobblin_assets.cli.lazy_commands import example
from gobblin_assets.cli.output import say
from gobblin_assets.cli.reporting import report_what_waits
from gobblin_assets.dagster.code_servers import keep_code_servers
from gobblin_assets.dagster.daemon_lock import hold_daemon_lock
from gobblin_assets.dagster.instance import URL_VARIABLE, prepare_instance
from gobblin_assets.dagster.runner_location import EXECUTOR_VARIABLE, PACK_VARIABLE
from gobblin_assets.dagster.ticket_sensors import PACK_MAX_DEFAULT
from gobblin_assets.db.supervision import supervise
from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.model.job_ticket import require_executor_name
from gobblin_assets.settings import make_home, read_settings
from gobblin_assets.spec.job_files import JOBS_VARIABLE, describe_missing_files, list_job_files, read_job_files

_PACK_MAX = 1_000
_LOCATION = "gobblin_assets.definitions"
_RUNNER_LOCATION = "gobblin_assets.dagster.runner_location"
_FLOWS_LOCATION = "gobblin_assets.dagster.flows_location"
_WORKSPACE = "executor_workspace.yaml"
_JOB_FILES = "job files"


@click.command(context_settings={"ignore_unknown_options": True}, epilog=example("dagster dev -p 3000"))
@click.option("--executor", help="Run the tickets that services send to the executor of this name.")
@click.option(
    "--pack-max",
    type=click.IntRange(1, _PACK_MAX),
    envvar=PACK_VARIABLE,
    default=PACK_MAX_DEFAULT,
    show_default=True,
    help="With --executor: so many small tickets share a run.",
)
@wire_options
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def dagster(executor: str | None, pack_max: int, arguments: Sequence[str], **wires: Any) -> None:
    """Run `dagster` on the instance of GOBBLIN_HOME, made if missing: gobblin-assets dagster dev -p 3000.

    `dev` shows the jobs that GOBBLIN_JOBS names, unless an option or a file of the working directory says what to load.
    With --executor it also has the code location that runs a service's tickets, and runs `dev` if nothing else is said.
    """
    arguments, wired = [*arguments], read_wire_choice(wires)
    if executor is None and list_wire_words(wired):
        raise RejectedError("is for an executor", field="--executor", hint="Name it.")
    if executor is not None:
        arguments = arguments or ["dev"]
        if list_wire_words(wired) and arguments[0] != "dev":
            raise RejectedError(
                f"`dagster {arguments[0]}` serves no wires, as `dagster dev` does",
                field="--kafka, --rest",
                hint=f"Serve them beside it: gobblin-assets executor wire --name {executor}.",
            )
        os.environ[EXECUTOR_VARIABLE] = require_executor_name(executor, field="--executor")
        os.environ[PACK_VARIABLE] = str(pack_max)
    if arguments[:1] == ["dev"]:
        if executor is not None:
            arguments += ["-w", str(_write_workspace(has_jobs=_has_job_files()))]
        elif not _says_what_to_load(arguments):
            arguments += ["-m", _LOCATION]
        _require_free_port(
            _find_option(arguments, "-h", "--host") or "127.0.0.1", _find_option(arguments, "-p", "--port")
        )
        _require_job_files(arguments)
    settings = read_settings()
    os.environ.update(prepare_instance(settings, say))
    say(f"DAGSTER_HOME={os.environ['DAGSTER_HOME']}")
    if _has_daemon(arguments):
        hold_daemon_lock(os.environ[URL_VARIABLE], _end_dagster, threading.Event().wait)
    _report_what_waits()
    if settings.database_url is None:
        supervise(settings.home, say)
    if _has_daemon(arguments):
        keep_code_servers(say)
    if executor is not None and _has_daemon(arguments):
        answer_beside(executor, list_wire_words(wired), say)
    # This process becomes Dagster: it gets the terminal's signals itself, and keeps the supervisor's thread.
    sys.argv = ["dagster", *arguments]
    runpy.run_module("dagster", run_name="__main__", alter_sys=True)


def _has_job_files() -> bool:
    return bool(list_job_files(os.environ, Path.cwd()))


def _write_workspace(*, has_jobs: bool) -> Path:
    """The file that names the code locations of an executor to Dagster."""
    named = {"runner": _RUNNER_LOCATION, "flows": _FLOWS_LOCATION, **({"jobs": _LOCATION} if has_jobs else {})}
    locations = [{"python_module": {"module_name": module, "location_name": name}} for name, module in named.items()]
    path = read_settings().home / _WORKSPACE
    try:
        make_home(path.parent)
        path.write_text(json.dumps({"load_from": locations}), encoding="utf-8")
    except OSError as error:
        raise RejectedError(
            f"{path} can't be written: {error.strerror}", field="home", hint="Make its folder writable."
        ) from error
    return path


def _has_daemon(arguments: Sequence[str]) -> bool:
    return list(arguments[:1]) == ["dev"] and "--help" not in arguments


def _end_dagster(said: str) -> None:
    """As a person ends it who types Ctrl+C: its own processes end with it."""
    say(f"error: {said}")
    os.kill(os.getpid(), signal.SIGINT)


def _says_what_to_load(arguments: Sequence[str]) -> bool:
    """Whether Dagster finds a code location by itself: it looks for one in an option, then in these files."""
    options = (("-m", "--module-name"), ("-w", "--workspace"), ("-f", "--python-file"), ("-d", "--working-directory"))
    others = (("--grpc-port",), ("--grpc-socket",), ("--package-name",))
    if "--help" in arguments or any(_find_option(arguments, *names) is not None for names in (*options, *others)):
        return True
    project = Path("pyproject.toml")
    is_project = project.exists() and "[tool.d" in _read_text(project)
    return is_project or any(Path(name).exists() for name in ("workspace.yaml", "dg.toml"))


def _find_option(arguments: Sequence[str], *names: str) -> str | None:
    """The last value of an option that is written ``-p 3000``, ``-p3000``, ``--port 3000`` or ``--port=3000``."""
    found = None
    for place, argument in enumerate(arguments):
        for name in names:
            if argument == name:
                found = arguments[place + 1] if place + 1 < len(arguments) else None
            elif name.startswith("--") and argument.startswith(f"{name}="):
                found = argument.removeprefix(f"{name}=")
            elif not name.startswith("--") and argument.startswith(name) and not argument.startswith("--"):
                found = argument.removeprefix(name)
    return found


def _require_free_port(host: str, port: str | None) -> None:
    """Refuse a port in use: Dagster's daemon would start and run for a while, although the web server can't start."""
    if port is None:
        # Without an option Dagster takes 3000, or another port that it prints.
        return
    if not port.isdecimal() or int(port) > 0xFFFF:
        raise RejectedError(
            f"expected a number from 0, for any port, to 65535, found {port!r}", field="--port", hint="Correct it."
        )
    with socket.socket() as probe:
        # Bind as the web server does: a port whose last connections are still closing counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError as error:
            fix = "Stop what listens there, or choose another: --port, or PORT= with make."
            said = "is taken" if error.errno == errno.EADDRINUSE else f"can't be had: {error.strerror}"
            raise RejectedError(f"port {port} of {host} {said}", field="--port", hint=fix) from error


def _require_job_files(arguments: Sequence[str]) -> None:
    """Refuse job files that can't be loaded, each in one line: in Dagster's UI their jobs would be missing."""
    workspace = _find_option(arguments, "-w", "--workspace")
    text = "" if workspace is None else _read_text(Path(workspace))
    loads_ours = _find_option(arguments, "-m", "--module-name") == _LOCATION or _LOCATION in text
    if not loads_ours and not os.environ.get(JOBS_VARIABLE):
        return
    paths = list_job_files(os.environ, Path.cwd())
    if not paths:
        say(describe_missing_files(os.environ, Path.cwd()))
    refusals = [RejectedError(said, field=_JOB_FILES) for said in read_job_files(paths).refused]
    for refusal in refusals[:-1]:
        say(f"error: {refusal}")
    if refusals:
        raise refusals[-1]


def _report_what_waits() -> None:
    """So that the first page shows what commands have done. What can't be reported keeps nobody from Dagster."""
    try:
        report_what_waits(read_job_files(list_job_files(os.environ, Path.cwd())).jobs.values())
    except GobblinError as error:
        say(f"what commands did is not reported to Dagster: {error}")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RejectedError(f"{path} can't be read: {error}", field="--workspace", hint="Correct the path.") from error
