"""Datasets that a hop reads and another job publishes: which job that is, and whether its ledger can be read.

A hop behind another one of its flow reads what that one publishes. Any other names the jobs in its parameters. The
copying executor reads a ledger in the log that it works with. So an executor of the ledger's log is taken, if there is
one, even if it costs more. Any other lists directories.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.job_plan import JobNames, PlannedJob
from gobblin_assets.service.job_template import JobTemplate
from gobblin_assets.service.routes import Hop, RouteMap, RouteRules
from gobblin_assets.service.template_parameters import FROM_DATASETS, Schema
from gobblin_assets.service.topology import ExecutorSpec, NodeState
from gobblin_assets.spec.job_parsing import parse_job, resolve_datasets

LEDGER: Final = "ledger"
LISTING: Final = "listing"


def reads_datasets(template: JobTemplate) -> bool:
    """Whether its hops read datasets that another job publishes."""
    return bool(_list_names(template.parameters))


def give_datasets(
    given: Mapping[str, Any], schema: Schema, before: PlannedJob, log: str, executor: ExecutorSpec
) -> dict[str, Any]:
    """The parameters of a hop behind ``before``, whose executor works with ``log``: it reads the datasets of before."""
    names = _list_names(schema)
    if not names:
        return dict(given)
    by = LEDGER if log == executor.log else LISTING
    datasets = [{"dataset": urn, "job": before.job_name, "by": by} for urn in list_published_urns(before)]
    return {**given, **dict.fromkeys(names, datasets)}


def list_published_urns(job: PlannedJob) -> Sequence[str]:
    """The datasets of a job that publishes datasets, in order."""
    return list(resolve_datasets(parse_job(job.ticket.job), None))


def choose_manifests(
    given: Mapping[str, Any], schema: Schema, names: JobNames, executor: ExecutorSpec
) -> dict[str, Any]:
    """The parameters with what says which files are copied, where they leave that open.

    RejectedError: one asks for a ledger that the executor can't read.
    """
    chosen = dict(given)
    known: dict[str, bool] = {}
    for name in _list_names(schema):
        if isinstance(items := given.get(name), list):
            chosen[name] = [
                _choose(item, f"parameters.{name}[{number}]", names, executor, known)
                for number, item in enumerate(items)
            ]
    return chosen


def prefer_ledgers(
    routes: RouteMap, rules: RouteRules, hops: Sequence[Hop], asked: Mapping[str, Any], names: JobNames
) -> tuple[Hop, ...]:
    """The hops, each that reads published datasets by an executor that can read their ledger, if there is one.

    ``asked``: the flow's parameters.
    """
    logs: dict[NodeState, str] = {}
    chosen = []
    for hop in hops:
        found = _find_reader(routes, rules, hop, asked, names, logs.get(hop.source))
        chosen.append(found)
        logs[found.target] = found.executor.log
    return tuple(chosen)


def _find_reader(
    routes: RouteMap, rules: RouteRules, hop: Hop, asked: Mapping[str, Any], names: JobNames, log: str | None
) -> Hop:
    """``log``: of the hop before; None: there is none, and the parameters name the jobs."""
    fields = _list_names(hop.template.parameters)
    if not fields:
        return hop
    jobs = {job for name in fields for job in _list_jobs(asked.get(name))} if log is None else set()

    def can_read(executor: ExecutorSpec) -> bool:
        if log is not None:
            return executor.log == log
        return all(names.shares_log(job, executor.way) is not False for job in jobs)

    if can_read(hop.executor):
        return hop
    bound = rules.bound.get(hop.target.node)
    banned = rules.banned
    others = [
        hop._replace(executor=each)
        for each in routes.list_reaching(hop.source.node)
        if hop.target.node in each.nodes
        and hop.template.capability in each.capabilities
        and rules.allows(each.groups)
        and (bound is None or bound.allows_log(each.way))
        and can_read(each)
    ]
    left = [each for each in others if each.identity not in banned]
    get_state = routes.topology.get_state
    return min(
        left,
        key=lambda each: (each.cost, not get_state(each.executor.name).is_well, each.executor.name),
        default=hop,
    )


def _list_jobs(items: object) -> Iterator[str]:
    """The jobs whose ledgers are to be read; what is no list of such members is refused later."""
    for each in items if isinstance(items, list | tuple) else ():
        job = each.get("job") if isinstance(each, Mapping) else None
        if isinstance(job, str) and each.get("by") != LISTING:
            yield job


def _choose(item: Any, place: str, names: JobNames, executor: ExecutorSpec, known: dict[str, bool]) -> Any:
    """What is no member of such a list is refused by the schema."""
    job = item.get("job") if isinstance(item, Mapping) else None
    if not isinstance(job, str):
        return item
    if job not in known:
        # What no flow has published was published by a job of its own, of the executor's log.
        known[job] = names.shares_log(job, executor.way) is not False
    if known[job]:
        return {"by": LEDGER, **item}
    if item.get("by") == LEDGER:
        raise RejectedError(
            f"the ledger of the job {job} is in another log than that of the executor {executor.name}",
            field=f"{place}.by",
            hint="Leave it out: the directory is then copied as it stands. Or have an executor of that log reach both "
            "nodes.",
        )
    return {"by": LISTING, **item}


def describe_manifests(
    values: Mapping[str, Any], asked: Mapping[str, Any], schema: Schema, names: JobNames, executor: ExecutorSpec
) -> Sequence[str]:
    """What is said of a plan's hop: which datasets are copied by their ledger, which are listed, and why.

    ``asked``: the parameters before they were chosen; those that name jobs.
    """
    by_job: dict[tuple[str, str, bool], list[str]] = {}
    for name in _list_names(schema):
        for number, each in enumerate(values.get(name, ())):
            is_asked = name in asked and "by" in asked[name][number]
            by_job.setdefault((each["job"], each["by"], is_asked), []).append(each["dataset"])
    unknown = {
        job
        for name in _list_names(schema)
        for job in dict.fromkeys(_list_jobs(asked.get(name)))
        if names.shares_log(job, executor.way) is None
    }
    notes = [f"no flow of this service has published as {job} yet: is it the job's name?" for job in sorted(unknown)]
    return [*(_describe(datasets, *found, executor) for found, datasets in by_job.items()), *notes]


def _describe(datasets: Sequence[str], job: str, by: str, is_asked: bool, executor: ExecutorSpec) -> str:  # noqa: FBT001  a part of a key
    which = datasets[0] if len(datasets) == 1 else f"{len(datasets)} datasets"
    if by == LEDGER:
        return f"{which} by the ledger of the job {job}: its active files of one version"
    if is_asked:
        return f"{which} by listing, with files that are retired, as the flow asks"
    return (
        f"{which} by listing, with files that are retired: the executor {executor.name} works with "
        f"{_name_log(executor.log)}, and the ledger of the job {job} is in another one"
    )


def _name_log(log: str) -> str:
    return f"the log {log}" if log else "the log of the service"


def _list_names(schema: Schema) -> Sequence[str]:
    return [name for name, each in schema["properties"].items() if each.get("x-from") == FROM_DATASETS]
