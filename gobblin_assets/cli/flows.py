"""Commands of flows, by the REST API of a running service."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from gobblin_assets.cli.lazy_commands import LazyGroup, example
from gobblin_assets.cli.node_questions import await_probe, say_failure
from gobblin_assets.cli.output import EXIT_FAILED, json_option, print_json, print_table, say
from gobblin_assets.cli.partition_range import PartitionRange
from gobblin_assets.cli.service_client import ServiceClient, flow_path, open_client, url_option
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.extract import Mode
from gobblin_assets.spec.yaml_files import read_yaml_file

_Command = TypeVar("_Command", bound=Callable[..., Any])

_LOOK_EVERY_S: Final = 1.0
_CHANGES_SHOWN_MAX: Final = 100
_FLOW_COLUMNS: Final = ("group", "name", "state", "version", "way", "schedule", "next", "note")
_ENDED: Final = frozenset({"COMPLETE", "FAILED", "CANCELLED"})

_group: Final = click.argument("group")
_name: Final = click.argument("name")
_file: Final = click.argument("flow_file", type=click.Path(path_type=Path, dir_okay=False))


def _of_a_flow(command: _Command) -> _Command:
    """GROUP NAME and --url."""
    return _group(_name(url_option(command)))


@click.group(cls=LazyGroup)
def flow() -> None:
    """Flows of a running service."""


@flow.command("create", epilog=example("service flow create flows/orders.yaml"))
@_file
@url_option
@json_option
def create(flow_file: Path, url: str | None, as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """Create the flow that FLOW_FILE describes, in YAML or JSON."""
    _show_flow(open_client(url).post("/flows", _read_file(flow_file)), as_json=as_json)


@flow.command("update", epilog=example("service flow update flows/orders.yaml"))
@_file
@url_option
@json_option
def update(flow_file: Path, url: str | None, as_json: bool) -> None:  # noqa: FBT001  the same
    """Replace the config of the flow that FLOW_FILE names."""
    config = _read_file(flow_file)
    for name in ("flow_group", "flow_name"):
        if not isinstance(config.get(name), str):
            raise RejectedError("is missing", field=name, hint="Write the name of the flow that is to change.")
    answer = open_client(url).put(flow_path(config["flow_group"], config["flow_name"]), config)
    _show_flow(answer, as_json=as_json)


@flow.command("list", epilog=example("service flow list --search orders"))
@click.option("--group", help="Flows of this group.")
@click.option("--search", help="A part of the group, the name or the description.")
@click.option("--pending", is_flag=True, help="Flows that no executor can run now.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@url_option
@json_option
def list_flows(
    group: str | None,
    search: str | None,
    pending: bool,  # noqa: FBT001  the same
    limit: int,
    url: str | None,
    as_json: bool,  # noqa: FBT001  the same
) -> None:
    """List flows, in the order of their groups and names."""
    found = open_client(url).get("/flows", group=group, search=search, pending=pending, limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [_flow_row(each) for each in found["flows"]]
    print_table("flows", _FLOW_COLUMNS, rows)
    if found["next"]:
        say(f"There are more than {limit}: choose by --search or --group.")


@flow.command("get", epilog=example("service flow get sales orders"))
@_of_a_flow
def get(group: str, name: str, url: str | None) -> None:
    """Print a flow as JSON: its config, its version, its state."""
    print_json(open_client(url).get(flow_path(group, name)))


@flow.command("delete", epilog=example("service flow delete sales orders"))
@_of_a_flow
def delete(group: str, name: str, url: str | None) -> None:
    """Delete a flow, and end what it runs. What it published stays."""
    open_client(url).delete(flow_path(group, name))
    say(f"deleted {group}/{name}")


@flow.command("run", epilog=example("service flow run sales orders --partition 2026-01-31 --wait"))
@_of_a_flow
@click.option("--dataset", "datasets", multiple=True, metavar="URN", help="One of the flow's; may be repeated.")
@click.option("--partition", "partitions", multiple=True, metavar="KEY", help="A partition; may be repeated.")
@click.option("--partition-range", "ranges", multiple=True, type=PartitionRange(), help="Both included.")
@click.option("--mode", type=click.Choice([mode.value for mode in Mode]), default=Mode.AUTO.value, show_default=True)
@click.option("--wait", is_flag=True, help="Wait for its end; exit code 1 unless it is COMPLETE.")
@json_option
def run(
    group: str,
    name: str,
    url: str | None,
    datasets: tuple[str, ...],
    partitions: tuple[str, ...],
    ranges: tuple[tuple[str, str], ...],
    mode: str,
    wait: bool,  # noqa: FBT001  the same
    as_json: bool,  # noqa: FBT001  the same
) -> None:
    """Run a flow: what is due, or the partitions that are named."""
    client = open_client(url)
    selection = {"datasets": datasets, "partitions": partitions, "ranges": ranges, "mode": mode}
    status = client.post(f"{flow_path(group, name)}:run", selection)
    place = f"{flow_path(group, name)}/executions/{status['execution_id']}"
    while wait and status["status"] not in _ENDED:
        time.sleep(_LOOK_EVERY_S)
        status = client.get(place)
    _show_status(status, as_json=as_json)
    if wait and status["status"] != "COMPLETE":
        click.get_current_context().exit(EXIT_FAILED)


@flow.command("status", epilog=example("service flow status sales orders"))
@_of_a_flow
@json_option
def show_status(group: str, name: str, url: str | None, as_json: bool) -> None:  # noqa: FBT001  the same
    """Show the last execution of a flow, with its jobs and watermarks."""
    _show_status(open_client(url).get(f"{flow_path(group, name)}/status"), as_json=as_json)


@flow.command("explain", epilog=example("service flow explain flows/orders.yaml --dry-run"))
@_file
@click.option("--dry-run", is_flag=True, help="Also ask executors what the jobs would read or copy now.")
@url_option
@json_option
def explain(flow_file: Path, dry_run: bool, url: str | None, as_json: bool) -> None:  # noqa: FBT001  the same
    """Show the plan for the flow that FLOW_FILE describes, or why there is none. Nothing is stored."""
    config = _read_file(flow_file)
    path = flow_path(str(config.get("flow_group") or "group"), str(config.get("flow_name") or "name"))
    client = open_client(url)
    found = client.post(f"{path}:explain", config)
    planned = _await_dry_run(client, path, config) if dry_run else []
    if as_json:
        print_json({**found, "dry_run": planned} if dry_run else found)
    else:
        _show_explanation(found)
        for job in planned:
            _show_dry_run(job)
    if any(job["probe"] is not None and job["probe"]["state"] != "ANSWERED" for job in planned):
        click.get_current_context().exit(EXIT_FAILED)


def _await_dry_run(client: ServiceClient, path: str, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    jobs = client.post(f"{path}:dry-run", config)["jobs"]
    return [{**job, "probe": None if job["probe"] is None else await_probe(client, job["probe"], say)} for job in jobs]


def _show_dry_run(job: Mapping[str, Any]) -> None:
    if job["note"]:
        say(f"{job['job_name']}: {job['note']}")
    if job["probe"] is None:
        return
    answer = job["probe"]["answer"]
    if answer is None:
        say_failure(job["probe"])
        return
    title = f"{job['job_name']}: {answer['partition_count']:,} partitions, {answer['work_unit_count']:,} WorkUnits"
    columns = ("dataset", "partition", "mode", "WorkUnits", "rows (estimated)", "files", "bytes", "note")
    rows = [
        (
            *(each["dataset"], each["partition"], each["mode"], each["work_units"], each["rows"]),
            *(each["changes"] or None, each["bytes"] or None, each["error"] or "; ".join(each["notes"])),
        )
        for each in answer["partitions"]
    ]
    print_table(title, columns, rows)
    if answer["changes"]:
        changes = [(each["action"], each["path"], each["bytes"], each["why"]) for each in answer["changes"]]
        print_table("files", ("action", "path", "bytes", "why"), changes[:_CHANGES_SHOWN_MAX])


def _show_explanation(found: Mapping[str, Any]) -> None:
    if found["plan"] is None:
        for reason in found["reasons"]:
            say(f"pending: {reason}")
    else:
        print_table(
            f"plan, cost {found['plan']['cost']:g}",
            ("job", "from", "to", "executor", "template"),
            [
                (
                    each["job_name"],
                    _state(each["source"]),
                    _state(each["target"]),
                    each["executor"],
                    each["template_uri"],
                )
                for each in found["plan"]["jobs"]
            ],
        )
        for each in found["plan"]["jobs"]:
            for note in each["notes"]:
                say(f"{each['job_name']}: {note}")
    for note in found["notes"]:
        say(note)
    # A service of a release before has no schedules.
    if fires := found.get("next_fires"):
        say(f"starts at {', '.join(fires)}")
    if found["untaken"]:
        rows = [
            (_state(each["source"]), _state(each["target"]), each["executor"], each["reason"])
            for each in found["untaken"]
        ]
        print_table("hops that are not taken", ("from", "to", "executor", "note"), rows)


@flow.command("pause", epilog=example("service flow pause sales orders"))
@_of_a_flow
def pause(group: str, name: str, url: str | None) -> None:
    """Let no execution of a flow begin. What runs goes on."""
    _do(url, group, name, "pause")


@flow.command("resume", epilog=example("service flow resume sales orders"))
@_of_a_flow
def resume(group: str, name: str, url: str | None) -> None:
    """Let executions of a paused flow begin again."""
    _do(url, group, name, "resume")


@flow.command("replan", epilog=example("service flow replan sales orders"))
@_of_a_flow
def replan(group: str, name: str, url: str | None) -> None:
    """Take the best plan of now, under new job names, beside the data that is there."""
    _show_flow(open_client(url).post_once(f"{flow_path(group, name)}:replan"), as_json=False)


@flow.command("repin", epilog=example("service flow repin sales orders"))
@_of_a_flow
def repin(group: str, name: str, url: str | None) -> None:
    """Take the newest versions of the packs that a flow's templates are of. The names of its jobs stay."""
    _show_flow(open_client(url).post_once(f"{flow_path(group, name)}:repin"), as_json=False)


@flow.command("cancel", epilog=example("service flow cancel sales orders 17"))
@_group
@_name
@click.argument("execution_id", type=click.IntRange(min=1))
@url_option
@json_option
def cancel(group: str, name: str, execution_id: int, url: str | None, as_json: bool) -> None:  # noqa: FBT001  the same
    """Ask for the end of an execution."""
    answer = open_client(url).post(f"{flow_path(group, name)}:cancel", {"execution_id": execution_id})
    _show_status(answer, as_json=as_json)


@flow.command("resume-execution", epilog=example("service flow resume-execution sales orders 17"))
@_group
@_name
@click.argument("execution_id", type=click.IntRange(min=1))
@url_option
@json_option
def resume_execution(group: str, name: str, execution_id: int, url: str | None, as_json: bool) -> None:  # noqa: FBT001  the same
    """Run what an execution has left that failed or was cancelled."""
    answer = open_client(url).post_once(f"{flow_path(group, name)}/executions/{execution_id}:resume")
    _show_status(answer, as_json=as_json)


def _do(url: str | None, group: str, name: str, verb: str) -> None:
    _show_flow(open_client(url).post(f"{flow_path(group, name)}:{verb}"), as_json=False)


def _read_file(path: Path) -> dict[str, Any]:
    data = read_yaml_file(path)
    if not isinstance(data, Mapping):
        raise RejectedError("expected a flow", field=str(path), hint="Write flow_group, flow_name, and so on.")
    return dict(data)


def _flow_row(found: Mapping[str, Any]) -> tuple[object, ...]:
    config = found["config"]
    begin = "" if config["source"] is None else config["source"]["node"]
    way = f"{begin} → {', '.join(each['node'] for each in config['destinations'])}"
    note = "; ".join(found["reasons"])
    schedule = f"{config['schedule']} {config.get('timezone', '')}".strip() if config["schedule"] else None
    return (
        config["flow_group"],
        config["flow_name"],
        found["state"],
        found["version"],
        way,
        schedule,
        found.get("next_fire_at"),
        note,
    )


def _show_flow(found: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    print_table("flow", _FLOW_COLUMNS, [_flow_row(found)])


def _show_status(found: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    rows = [
        (
            each["job_name"],
            each["executor"],
            each["status"],
            each["processed_count"],
            each["low_watermark"],
            each["high_watermark"],
            each["message"],
        )
        for each in found["jobs"]
    ]
    title = f"{found['flow_group']}/{found['flow_name']}, execution {found['execution_id']}: {found['status']}"
    print_table(title, ("job", "executor", "status", "processed", "low", "high", "note"), rows)
    if found["message"]:
        say(found["message"])


def _state(state: Mapping[str, str]) -> str:
    return f"{state['node']} ({state['format']})"
