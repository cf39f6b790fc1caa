"""Commands of executors: serve takes tickets of the log, and starts a process for each, which run is."""

import json
import os
import sys
import threading
import uuid
from typing import Any, Final

import click

from gobblin_assets.cli.connections import SparkChoice, spark_options
from gobblin_assets.cli.executor_wires import read_wire_choice, serve_wires, wire, wire_options
from gobblin_assets.cli.lazy_commands import example
from gobblin_assets.cli.output import EXIT_FAILED, escape_controls, json_option, print_json, print_table, say, to_text
from gobblin_assets.db.notices import Channel
from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.ingest.engine_port import AnnouncedEngine
from gobblin_assets.jobs.programs import JOB_PROGRAMS
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.executor_heartbeat import ExecutorHeartbeat
from gobblin_assets.model.job_ticket import TicketId
from gobblin_assets.run.log import open_log
from gobblin_assets.run.own_process import StopRequest, heed_stop_signals
from gobblin_assets.run.runner import owner_text
from gobblin_assets.spec.job_kinds import COPY_KIND, DEFAULT_KIND
from gobblin_assets.state.tickets import AttemptEnd
from gobblin_assets.tickets.attempt_output import keep_outputs
from gobblin_assets.tickets.attempt_processes import SpareProcesses, await_claim
from gobblin_assets.tickets.child import run_attempt
from gobblin_assets.tickets.executor import CLAIM_TTL_S, ExecutorOptions, ProcessExecutor
from gobblin_assets.tickets.heartbeats import Heart, describe_executor

_SLOTS_MAX: Final = 256
_STANDARD_INPUT: Final = 0
_REPORTS_MAX: Final = 10_000
_OUTPUTS_MAX: Final = 5


@click.group()
def executor() -> None:
    """Executors: processes that take a service's tickets of this log, and run their jobs."""


@executor.command("serve", epilog=example("executor serve --name local --slots 4"))
@click.option("--name", required=True, help="The executor's name; several processes of one name share its tickets.")
@click.option(
    "--slots",
    type=click.IntRange(0, _SLOTS_MAX),
    default=2,
    show_default=True,
    help="Tickets at once. 0: only answer questions, beside a Dagster that runs the tickets.",
)
@click.option(
    "--claim-ttl",
    "claim_ttl_s",
    type=click.FloatRange(min=1),
    default=CLAIM_TTL_S,
    show_default=True,
    help="In seconds: so long after an executor died, another one takes its tickets over.",
)
@click.option("--with-input", "with_input", is_flag=True, hidden=True, help="End when the standard input does.")
@wire_options
@spark_options
def serve(
    name: str,
    slots: int,
    claim_ttl_s: float,
    with_input: bool,  # noqa: FBT001  an option that click passes by name
    master: str | None,
    remote: str | None,
    **wires: Any,
) -> None:
    """Take tickets, and run each in a process of its own.

    Until SIGTERM or Ctrl-C: then the jobs under way are interrupted, and go on with the next executor of the name.
    """
    choice, wired, stop = SparkChoice(master, remote), read_wire_choice(wires), StopRequest()
    environment = {**os.environ, **choice.environment()}

    with (
        open_log(say) as log,
        heed_stop_signals(say, stop),
        keep_outputs(log.stores.tickets, environment, say) as outputs,
        serve_wires(wired, name, owner_text(), log.stores),
    ):
        command = [sys.executable, "-m", "gobblin_assets.cli", "executor", "run"]
        clock = SystemClock()
        processes = SpareProcesses(lambda: outputs.spawn(command, environment), clock, outputs.assign)

        options = ExecutorOptions(name, slots, owner_text(), claim_ttl_s)

        def describe() -> ExecutorHeartbeat:
            return describe_executor(name, options.owner, log.stores.tickets.find_log_id(), slots, environment)

        heart = Heart(log.stores.heartbeats, describe, clock)
        say(f"executor {name} of the log {log.stores.tickets.find_log_id()}: {slots} slots")
        if with_input:
            threading.Thread(target=_stop_with_input, args=(stop,), name="input", daemon=True).start()
        listener = log.make_listener({Channel.TICKETS: lambda to: stop.wake() if to in ("", name) else None})
        listener.start()
        ProcessExecutor(options, log.stores, processes, heart, clock, say).take_tickets(stop.wait)
        listener.stop()


def _stop_with_input(stop: StopRequest) -> None:
    while os.read(_STANDARD_INPUT, 1):
        pass
    stop.make()


executor.add_command(wire)


@executor.command("reports", epilog=example("executor reports 01a224ca-1b31-7d99-8c3a-1d727f93b1c4"))
@click.argument("ticket_id", type=click.UUID)
@json_option
def reports(ticket_id: uuid.UUID, as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """Show what the attempts at a ticket reported and said.

    These are their reports, and the last lines of their processes. Of a worker that has reported for long: the first
    10,000 reports.
    """
    with open_log(say) as log:
        found = log.stores.tickets.list_reports([TicketId(ticket_id)], {}, limit=_REPORTS_MAX)
        outputs = log.stores.tickets.list_outputs(TicketId(ticket_id), limit=_OUTPUTS_MAX)
    if as_json:
        print_json({"reports": found, "outputs": outputs})
        return
    rows = [(each.at, each.attempt, each.kind.value, json.dumps(each.details, ensure_ascii=False)) for each in found]
    print_table("reports", ("at", "attempt", "report", "details"), rows)
    for each in outputs[::-1]:
        said = escape_controls(each.lines, keeps="\n")
        click.echo(f"\nattempt {each.attempt} said, up to {to_text(each.updated_at)}:\n{said}")


@executor.command("give-up", epilog=example("executor give-up 01a224ca-1b31-7d99-8c3a-1d727f93b1c4"))
@click.argument("ticket_id", type=click.UUID)
def give_up(ticket_id: uuid.UUID) -> None:
    """End a ticket that no executor will take any more.

    Such as a DELETE whose executor is gone. What the ticket was to delete at a source, such as a replication slot,
    stays there: remove it by hand.
    """
    with open_log(say) as log:
        if not log.stores.tickets.end_unclaimed(TicketId(ticket_id), "it was given up by hand"):
            raise RejectedError(
                f"an attempt at the ticket {ticket_id} lives", field="ticket", hint="Cancel it by the service, or wait."
            )
    say(f"The ticket {ticket_id} has ended.")


@executor.command("run", hidden=True, epilog=example("executor run"))
@spark_options
def run(master: str | None, remote: str | None) -> None:
    """Wait for a claim, and run that attempt at its ticket.

    `executor serve` starts it, and has the other end of its standard input.
    """
    choice = SparkChoice(master, remote)
    for kind in (DEFAULT_KIND, COPY_KIND):
        # Its imports take longer than all else between a claim and the work.
        JOB_PROGRAMS.get(kind)
    claim = await_claim(_STANDARD_INPUT)
    if claim is None:
        return

    def say_as_ticket(line: str) -> None:
        say(f"ticket {claim.ticket_id}: {line}")

    with open_log(say) as log:
        end = run_attempt(
            claim,
            log.stores,
            lambda: AnnouncedEngine(choice.open(), say_as_ticket),
            say_as_ticket,
            _STANDARD_INPUT,
        )
    if end is not AttemptEnd.COMPLETE:
        click.get_current_context().exit(EXIT_FAILED)
