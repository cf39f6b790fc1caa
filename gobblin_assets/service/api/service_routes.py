"""Routes of ``/api/v1`` for what flows are made of, and for the service itself."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final
from urllib.parse import unquote

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from gobblin_assets.service.access import User, may_use
from gobblin_assets.service.api.representations import (
    AlertBody,
    ExecutorBody,
    HealthBody,
    LogBody,
    NodeBody,
    PastExecutionBody,
    TokenBody,
    UserBody,
    show_alert,
    show_executor,
    show_log,
    show_node,
    show_past_execution,
)
from gobblin_assets.service.api.request_parts import Asker, JsonBody, Parts, ServedParts, read_object, takes
from gobblin_assets.service.flow_store import SpecNotFoundError
from gobblin_assets.service.job_template import JobTemplate
from gobblin_assets.service.template_store import parse_template_uri
from gobblin_assets.service.topology import DataNode, TopologySpec

service_routes = APIRouter(prefix="/api/v1", tags=["service"])

_DIGEST_SHOWN: Final = 12


@service_routes.get("/nodes")
def list_nodes(parts: Parts, user: Asker) -> list[NodeBody]:
    """List the places of data that the user may use."""
    return [show_node(each) for each in find_nodes(parts, user)]


@service_routes.get("/executors")
def list_executors(parts: Parts, user: Asker) -> list[ExecutorBody]:
    """List the executors that the user may use, with the nodes that the user may use, and how they are."""
    return [show_executor(each) for each in parts.executors.list_shown(user)]


@service_routes.get("/executors/{executor}")
def get_executor(parts: Parts, user: Asker, executor: str) -> ExecutorBody:
    """Get an executor: what it can do and reach, when it was heard, its slots, and how many tickets wait for them."""
    return show_executor(parts.executors.get_shown(user, unquote(executor)))


@service_routes.get("/executors/{executor}/jobs")
def list_executor_jobs(parts: Parts, user: Asker, executor: str) -> list[PastExecutionBody]:
    """List the jobs that were sent to the executor and have not ended, the oldest first; the first 200."""
    return [show_past_execution(each) for each in parts.executors.list_jobs(user, unquote(executor))]


@service_routes.get("/alerts")
def list_alerts(parts: Parts, user: Asker) -> list[AlertBody]:
    """List what waits for a person, of flows and executors that the user may see; the first 100 of each kind."""
    return [show_alert(each) for each in parts.alerts.list_alerts(user)]


@service_routes.put("/nodes/{node}", openapi_extra=takes({"type": "object"}))
def put_node(parts: Parts, user: Asker, node: str, body: JsonBody) -> NodeBody:
    """Add or replace a node, by options as in a topology file. Its root and its connection never change."""
    parts.rules().check_manager(user)
    return show_node(parts.topologies.put_node(unquote(node), read_object(body)))


@service_routes.delete("/nodes/{node}", status_code=204)
def delete_node(parts: Parts, user: Asker, node: str) -> None:
    """Remove a node that nothing uses."""
    parts.rules().check_manager(user)
    if not parts.topologies.remove_node(unquote(node)):
        raise _no_such("node", unquote(node))


@service_routes.put("/executors/{executor}", openapi_extra=takes({"type": "object"}))
def put_executor(parts: Parts, user: Asker, executor: str, body: JsonBody) -> ExecutorBody:
    """Add or replace an executor, by options as in a topology file."""
    parts.rules().check_manager(user)
    parts.topologies.put_executor(name := unquote(executor), read_object(body))
    return show_executor(parts.executors.get_put(name))


@service_routes.delete("/executors/{executor}", status_code=204)
def delete_executor(parts: Parts, user: Asker, executor: str) -> None:
    """Remove an executor. Tickets that it was sent stay its own."""
    parts.rules().check_manager(user)
    if not parts.topologies.remove_executor(unquote(executor)):
        raise _no_such("executor", unquote(executor))


@service_routes.get("/logs")
def list_logs(parts: Parts, user: Asker) -> list[LogBody]:
    """List the logs of the executors that the user may use: whether they drain, and how long the last drain took."""
    return [show_log(each) for each in parts.logs.list_shown(user)]


@service_routes.post("/logs/{log}:drain")
def drain_log(parts: Parts, user: Asker, log: str) -> LogBody:
    """Let nobody claim tickets of a log, and end what runs there, so that the log can be upgraded."""
    return show_log(parts.logs.drain(user, unquote(log)))


@service_routes.post("/logs/{log}:resume")
def resume_log(parts: Parts, user: Asker, log: str) -> LogBody:
    """Let the executors of a log claim tickets again."""
    return show_log(parts.logs.resume(user, unquote(log)))


@service_routes.get("/me")
def get_me(user: Asker) -> UserBody:
    """Get the user that the service takes you for."""
    return UserBody(name=user.name, groups=sorted(user.groups))


@service_routes.get("/tokens")
def list_tokens(parts: Parts, user: Asker) -> list[TokenBody]:
    """List your tokens, by the begins of their digests, as the file of rights has them. Managers see those of all."""
    rules = parts.rules()
    shown = rules.tokens if rules.may_manage(user) else [each for each in rules.tokens if each.user == user.name]
    return [
        TokenBody(user=each.user, digest=each.sha256[:_DIGEST_SHOWN], expires_at=each.expires_at)
        for each in sorted(shown, key=lambda each: (each.user, each.expires_at))
    ]


@service_routes.get("/health")
def get_health(parts: Parts) -> HealthBody:
    """Get the state of the service. It is asked without a token."""
    age_s = parts.measure_age_s()
    return HealthBody(
        status="read_only" if age_s else "ok", snapshot_age_s=age_s, topology_version=parts.topologies.topology.version
    )


@service_routes.get("/metrics", response_class=PlainTextResponse)
def get_metrics(parts: Parts, user: Asker) -> PlainTextResponse:  # noqa: ARG001  who asks must be known
    """Get what the catalogs counted, as Prometheus reads it."""
    return PlainTextResponse("".join(_write_metrics(parts)), media_type="text/plain; version=0.0.4")


def find_templates(parts: ServedParts, user: User) -> list[JobTemplate]:
    return parts.packs.list_templates(user)


def get_visible_template(parts: ServedParts, user: User, uri: str) -> JobTemplate:
    """SpecNotFoundError: there is none of this URI, or the user may not use it."""
    return parts.packs.get_template(user, parse_template_uri(uri, "uri"))


def find_nodes(parts: ServedParts, user: User) -> list[DataNode]:
    nodes = parts.topologies.topology.nodes
    return [nodes[name] for name in sorted(nodes) if may_use(nodes[name].groups, user)]


def find_executors(parts: ServedParts, user: User) -> list[TopologySpec]:
    """The executors that the user may use, each with those of its nodes that the user may use."""
    executors = parts.topologies.topology.executors
    nodes = frozenset(node.name for node in find_nodes(parts, user))
    found = [executors[name] for name in sorted(executors) if may_use(executors[name].executor.groups, user)]
    return [replace(spec, executor=replace(spec.executor, nodes=spec.executor.nodes & nodes)) for spec in found]


def _no_such(what: str, name: str) -> SpecNotFoundError:
    return SpecNotFoundError(f"there is no {what} {name[:200]!a}", field=what, hint="Look at the topology.")


def _write_metrics(parts: ServedParts) -> Iterator[str]:
    measured = parts.measure()
    for name, kind, said in (
        ("specs", "gauge", "Specs that the catalog holds."),
        ("puts", "counter", "Specs that were put since the process began."),
        ("removals", "counter", "Specs that were removed since the process began."),
        ("listener_failures", "counter", "Changes at which a listener failed."),
    ):
        family = f"gobblin_catalog_{name}{'_total' if kind == 'counter' else ''}"
        yield f"# HELP {family} {said}\n# TYPE {family} {kind}\n"
        for catalog, found in sorted(measured.items()):
            yield f'{family}{{catalog="{catalog}"}} {getattr(found, name)}\n'
    family = "gobblin_catalog_changed_timestamp_seconds"
    yield f"# HELP {family} Time of the last change, as this process heard of it.\n# TYPE {family} gauge\n"
    for catalog, found in sorted(measured.items()):
        if found.changed_at is not None:
            yield f'{family}{{catalog="{catalog}"}} {found.changed_at.timestamp():.3f}\n'
    yield "# HELP gobblin_snapshot_age_seconds Age of the copy of the flows that answers; 0: the database does.\n"
    yield f"# TYPE gobblin_snapshot_age_seconds gauge\ngobblin_snapshot_age_seconds {parts.measure_age_s():g}\n"
