"""Commands on the events of publications: deliver."""

from dataclasses import replace
from pathlib import Path

import click

from gobblin_assets.cli.connections import job_file_argument
from gobblin_assets.cli.lazy_commands import LazyGroup, example
from gobblin_assets.cli.output import EXIT_FAILED, json_option, print_json, print_table, say
from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.events.outbox import Outbox, open_events
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.log import open_log
from gobblin_assets.spec.job_files import read_any_job_file


@click.group(cls=LazyGroup)
def events() -> None:
    """Events of publications, which a job sends to its sinks."""


@events.command("deliver", epilog=example("events deliver jobs/shop.yaml"))
@job_file_argument
@json_option
def deliver(job_file: Path, as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """Deliver to the job's sinks the events that they lack: of recovered publications, and those not taken before.

    Each run does the same when it ends.
    """
    job = read_any_job_file(job_file)
    sent: dict[str, int] = {}
    errors: dict[str, GobblinError] = {}
    with open_log(say) as log:
        outbox = open_events(job, log.stores, SystemClock(), say)
        if not isinstance(outbox, Outbox):
            raise RejectedError(f"the job {job.job} names no sinks", field="events", hint="Add one under `events`.")
        name = JobName(job.job)
        known = log.stores.datasets.load(name, [urn for _job, urn in log.stores.datasets.list_urns(name)])
        outbox.begin([state.dataset_id for state in known.values()])
        for sink in job.events:
            try:
                sent[sink.known_as] = replace(outbox, work_s_max=None).deliver_to(sink)
            except GobblinError as error:
                errors[sink.known_as] = error
                say(f"events for {sink.known_as} wait: {error}")
    if as_json:
        print_json(sent)
    else:
        print_table("delivered", ("sink", "events"), list(sent.items()))
    if errors:
        click.get_current_context().exit(EXIT_FAILED)
