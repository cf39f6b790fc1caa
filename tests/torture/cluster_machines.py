"""The machines of a cluster under torture: three nodes of a service, an executor of processes, and two Dagsters."""

import http.client
import json
import sys
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import yaml

import gobblin_assets.service
from demo.server_process import find_port
from tests.torture.cluster_places import AIRPORT, NODES, OFFICE, WAREHOUSE, ClusterPlaces, make_topology
from tests.torture.cluster_programs import Program, wait_for

NODE_COUNT: Final = 3
CLAIM_TTL_S: Final = 10
"""Of executors of processes. Dagster's runs have 30 s."""

_LEASE_TTL_S: Final = 10
_PROGRAM: Final = (sys.executable, "-m", "gobblin_assets.cli")
_ROOT: Final = Path(__file__).parents[2]
_ANSWER_S_MAX: Final = 30.0
_HEARD_S_MAX: Final = 600.0

# What these begin with is a job; its lease is short here, so that others follow the killed soon.
_JOB: Final = "\njob:\n"
_SHORT_LEASE: Final = f"\njob:\n  lease: {{ttl_s: {_LEASE_TTL_S}}}\n  retry: {{task_tries_max: 2, back_off_s: 1}}\n"

# Words of the command lines of Dagster's parts.
DAEMON: Final = ("dagster._daemon",)
CODE_SERVER: Final = ("api grpc", "runner_location")
BESIDE: Final = ("--slots 0",)

_EXECUTORS: Final[Mapping[str, Mapping[str, Any]]] = {
    OFFICE: {
        "capabilities": ["ingest.jdbc", "distcp", "sink.into.iceberg", "sink.into.postgres", "sink.postgres_log"],
        "nodes": ["shop", "shop_log", "lake", "mirror", "main", "shelf", "iceberg"],
        "cost": 3,
    },
    WAREHOUSE: {
        "technology": "dagster",
        "capabilities": ["ingest.jdbc", "distcp"],
        "nodes": ["shop", "lake", "mirror"],
    },
    AIRPORT: {
        "technology": "dagster",
        "communication": "kafka",
        "location": "main",
        "log": "far",
        "capabilities": ["ingest.jdbc"],
        "nodes": ["shop", "far_lake"],
    },
}


@dataclass
class ClusterMachines:
    """``nodes`` answer at ``ports``. ``executors``: by name."""

    places: ClusterPlaces
    nodes: list[Program]
    ports: list[int]
    executors: dict[str, Program]

    @property
    def programs(self) -> list[Program]:
        return [*self.nodes, *self.executors.values()]

    def start(self) -> None:
        for each in self.programs:
            each.start()
        wait_for(self.are_heard, "heartbeats of all executors", _HEARD_S_MAX, self.say)

    def are_heard(self) -> bool:
        """Whether the service has heard of each executor just now."""
        with suppress(ConnectionError):
            return all(self.ask("GET", f"/executors/{each}")["health"]["state"] == "HEALTHY" for each in self.executors)
        return False

    def close(self) -> None:
        for each in self.programs:
            each.kill()

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer of any node. ConnectionError: none has one."""
        headers = {"Idempotency-Key": str(uuid.uuid4())} if method == "POST" else {}
        data = None if body is None else json.dumps(body).encode()
        for port in self.ports:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_S_MAX)
            try:
                connection.request(method, f"/api/v1{path}", body=data, headers=headers)
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException):
                continue
            finally:
                connection.close()
            if answer.status != HTTPStatus.SERVICE_UNAVAILABLE:
                assert answer.status < HTTPStatus.BAD_REQUEST, f"{method} {path}: {content.decode()}"
                return json.loads(content) if content else None
        raise ConnectionError(f"{method} {path}: no node answers")

    def say(self) -> str:
        return "\n".join(f"=== {each.name}\n{each.say()[-3_000:]}" for each in self.programs)


def make_machines(places: ClusterPlaces, names: tuple[str, ...]) -> ClusterMachines:
    """Nothing is started yet. ``names``: of the executors."""
    chosen = {name: _EXECUTORS[name] for name in names}
    topology = places.place("topology.yaml")
    topology.write_text(yaml.safe_dump(make_topology(places, chosen)), encoding="utf-8")
    pack = _write_pack(places.place("pack"))
    ports = [find_port() for _ in range(NODE_COUNT)]
    nodes = []
    for number, port in enumerate(ports, 1):
        words = ["service", "serve", "--no-auth", "--port", str(port), "--topology", str(topology), "--pack", str(pack)]
        own = {
            "GOBBLIN_DATABASE_URL": places.url(places.own_log, NODES),
            "GOBBLIN_HOME": str(places.place(f"home-node-{number}")),
            **places.broker_variables,
        }
        nodes.append(_make(places, f"node-{number}", words, own))
    makers: Mapping[str, Callable[[], Program]] = {
        OFFICE: lambda: _make_office(places),
        WAREHOUSE: lambda: _make_dagster(places, WAREHOUSE),
        AIRPORT: lambda: _make_dagster(places, AIRPORT, "--kafka", "main"),
    }
    return ClusterMachines(places, nodes, ports, {name: makers[name]() for name in names})


def _make_office(places: ClusterPlaces) -> Program:
    words = ["executor", "serve", "--name", OFFICE, "--claim-ttl", str(CLAIM_TTL_S), "--slots", "5"]
    return _make(places, OFFICE, words, places.variables(OFFICE))


def _make_dagster(places: ClusterPlaces, name: str, *wires: str) -> Program:
    own = {**places.variables(name), "GOBBLIN_DAGSTER_URL": places.url(places.dagster_databases[name], name)}
    words = ["dagster", "--executor", name, *wires, "dev", "-p", str(find_port())]
    made = _make(places, name, words, own)
    made.needed, made.is_fragile = (DAEMON, CODE_SERVER, BESIDE), True
    return made


def _make(places: ClusterPlaces, name: str, words: list[str], variables: Mapping[str, str]) -> Program:
    environment = {"PYTHONPATH": str(_ROOT), **variables}
    return Program(name, [*_PROGRAM, *words], environment, places.folder)


def _write_pack(folder: Path) -> Path:
    """The templates that are shipped, with short leases."""
    folder.mkdir()
    (folder / "pack.yaml").write_text("pack: default\nversion: '9'\n", encoding="utf-8")
    shipped = Path(gobblin_assets.service.__file__).parent / "packs" / "default"
    for path in shipped.glob("*.template"):
        text = path.read_text(encoding="utf-8")
        assert text.count(_JOB) == 1
        (folder / path.name).write_text(text.replace(_JOB, _SHORT_LEASE), encoding="utf-8")
    return folder
