"""One history of a cluster under torture: flows run on all of it, much of it dies, and all that moved is compared."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Engine

from demo.kafka.broker import KafkaBroker
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.engine import open_external
from tests.support.database_pool import DatabasePool
from tests.support.postgres import Database
from tests.torture.cluster_faults import OF_DAGSTER, ClusterDisturber, ClusterVictim, plan_faults
from tests.torture.cluster_machines import ClusterMachines, make_machines
from tests.torture.cluster_places import (
    AIRPORT,
    GROUP,
    NAMESPACE,
    OFFICE,
    PUBLICATION,
    TOPIC,
    WAREHOUSE,
    ClusterPlaces,
    SourceWriter,
    dataset_of,
    make_flow,
    open_places,
)
from tests.torture.cluster_programs import wait_for
from tests.torture.cluster_proof import (
    Rows,
    find_log_faults,
    find_slot_faults,
    follow_accounts,
    list_published,
    list_shown,
    read_iceberg,
    read_published,
    read_shelf,
    read_shown,
    read_source,
    read_topic,
)

FULL: Final = (OFFICE, WAREHOUSE, AIRPORT)
SMALL: Final = (OFFICE,)

_PUBLISHED_S_MAX: Final = 420.0
_ENDED_S_MAX: Final = 240.0
_HEARD_S_MAX: Final = 600.0
_CONTINUOUS: Final = "@continuous"


@dataclass
class ClusterHistory:
    """``engines``: of the logs, by name; the service's own database is ``own``."""

    places: ClusterPlaces
    machines: ClusterMachines
    disturber: ClusterDisturber
    feeder: SourceWriter
    engines: Mapping[str, Engine]
    seed: str

    @property
    def has_dagster(self) -> bool:
        return AIRPORT in self.machines.executors

    def play(self, kills: int, s_max: float) -> None:
        """Write, start, make the flows, and let so many processes be killed, in at most so many seconds."""
        self.feeder.start()
        self.machines.start()
        for flow in self._make_flows():
            self.machines.ask("POST", "/flows", flow)
        plan = plan_faults(self.seed, frozenset(ClusterVictim) - (frozenset() if self.has_dagster else OF_DAGSTER))
        self.disturber.disturb(plan, kills, time.monotonic() + s_max)

    def settle(self) -> None:
        """Heal all, let flows publish the rest, and end them."""
        self.disturber.heal()
        self.feeder.stop()
        wait_for(self.machines.are_heard, "heartbeats of all executors", _HEARD_S_MAX, self.say)
        # Missing rows are named by the comparison, and not by the wait.
        with suppress(AssertionError):
            wait_for(lambda: not any(self.find_differences()), "all is published", _PUBLISHED_S_MAX, str)
        for flow in self._list_flows():
            self.machines.ask("POST", f"/flows/{GROUP}/{flow}:pause")
        service = self.engines["own"]
        with suppress(AssertionError):
            wait_for(lambda: not any(find_log_faults(self.engines, service)), "all has ended", _ENDED_S_MAX, str)

    def find_faults(self) -> list[str]:
        service = self.engines["own"]
        surprises = [said for each in self.machines.programs for said in each.surprises]
        return [
            *self.find_differences(),
            *find_log_faults(self.engines, service),
            *find_slot_faults(service),
            *surprises,
        ]

    def find_differences(self) -> Iterator[str]:
        """Between sources and destinations, as multisets."""
        places, own = self.places, self.engines["own"]
        orders = self._job_of("orders")
        for table in ("orders", "customers"):
            source = read_source(places, table)
            yield from _differ(f"{table} in the lake", source, read_published, own, orders, table)
            yield from _differ(f"{table} in the mirror", source, read_shown, places.place("mirror"), table)
        named, shown = list_published(own, orders, "orders"), list_shown(places.place("lake"), "orders")
        if sorted(named) != sorted(shown):
            yield f"orders: the ledger has {len(named)} files, and the lake others: {len(shown)}"
        if self.has_dagster:
            items = self._job_of("items")
            source = read_source(places, "items")
            yield from _differ("items in the far lake", source, read_published, self.engines["far"], items, "items")
        yield from _differ("loads in a table", read_source(places, "loads"), read_shelf, places, "loads")
        yield from _differ("visits in Iceberg", read_topic(places), read_iceberg, places)
        try:
            follow_accounts(places, own, self._job_of("accounts")).require_same("accounts", "id")
        except AssertionError as error:
            yield f"accounts by their changes: {str(error)[:300]}"

    def say(self) -> str:
        return "\n".join([*self.disturber.said, self.machines.say()])

    def _list_flows(self) -> list[str]:
        return [str(each["flow_name"]) for each in self._make_flows()]

    def _job_of(self, flow: str) -> str:
        return str(self.machines.ask("GET", f"/flows/{GROUP}/{flow}/jobs")[0]["job_name"])

    def _make_flows(self) -> Iterator[dict[str, Any]]:
        """In this order: a copy names the job that it copies from."""
        patient = {"retries": 20, "retry_wait": "2s", "catch_up": "latest"}

        def each_minute(second: int) -> dict[str, Any]:
            return {"schedule": f"{second} * * * * ?", "run_immediately": True, **patient}

        tables = [dataset_of("orders"), dataset_of("customers", grows=False)]
        yield make_flow("orders", "shop", "lake", parameters={"datasets": tables}, **each_minute(0))
        loads = {"datasets": [dataset_of("loads") | {"to_table": "loads"}]}
        yield make_flow("loads", "shop", "shelf", parameters=loads, **each_minute(20))
        if self.has_dagster:
            items = {"datasets": [dataset_of("items")]}
            yield make_flow("items", "shop", "far_lake", parameters=items, **each_minute(30))
        visits = {"topic": TOPIC, "format": "json", "schema": "id bigint, amount bigint"}
        parameters: dict[str, Any] = {"namespace": NAMESPACE, "datasets": [visits]}
        yield make_flow("visits", "main", "iceberg", parameters=parameters, schedule=_CONTINUOUS)
        parameters = {"publication": PUBLICATION, "datasets": [{"table": "public.accounts"}]}
        yield make_flow("accounts", "shop_log", "lake", parameters=parameters, schedule=_CONTINUOUS)
        copied = [{"dataset": f"public.{table}", "job": self._job_of("orders")} for table in ("orders", "customers")]
        mirror = make_flow("mirror", "lake", "mirror", parameters={"datasets": copied}, **each_minute(40))
        yield mirror | {"source": {"node": "lake", "format": "dataset"}}


def _differ(what: str, source: Rows, read: Callable[..., Rows], *arguments: Any) -> Iterator[str]:
    try:
        found = read(*arguments)
    except FileNotFoundError as error:
        yield f"{what}: {error}"
        return
    if source != found or not source:
        missing, extra = source - found, found - source
        rows = f"{sorted(missing)[:3]}, {sorted(extra)[:3]}"
        yield f"{what}: of {source.total()} rows {missing.total()} are missing, {extra.total()} are extra: {rows}"


@contextmanager
def open_history(
    server: EmbeddedServer,
    pool: DatabasePool,
    source: Database,
    broker: KafkaBroker,
    seed: str,
    names: tuple[str, ...],
) -> Iterator[ClusterHistory]:
    with ExitStack() as stack:
        places = open_places(stack, server, pool, source, broker)
        machines = make_machines(places, names)
        stack.callback(machines.close)
        engines = {"own": open_external(places.url(places.own_log))}
        if AIRPORT in names:
            engines["far"] = open_external(places.url(places.far_log))
        for engine in engines.values():
            stack.callback(engine.dispose)
        feeder = SourceWriter(places, seed)
        yield ClusterHistory(places, machines, ClusterDisturber(machines, broker), feeder, engines, seed)
