"""Two executors on one log, as processes: one of them is killed, and the other one does what is left."""

import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import yaml

from gobblin_assets.db import schema
from gobblin_assets.service import opening
from gobblin_assets.service.access import User
from gobblin_assets.service.flow_config import read_flow_config
from gobblin_assets.service.flow_manager import FlowManager
from gobblin_assets.service.pack_files import read_pack_at
from gobblin_assets.service.postgres.history import SERVICE_HISTORY
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.statuses import ExecutionStatus, FlowStatus, JobStatus
from gobblin_assets.settings import read_settings
from tests.support.flow_torture import TEMPLATE
from tests.support.ticket_shop import TicketShop, ticket_shop

__all__ = ["ticket_shop"]

FIRST, SECOND = "first", "second"
PERSON = User("ann", frozenset())
WAIT_S_MAX = 120.0
TTL_S = "4"


def write_files(folder: Path) -> tuple[Path, Path]:
    nodes = {
        "shop": {"kind": "database", "connection": "shop"},
        **{name: {"kind": "files", "root": str(folder / name)} for name in ("lake", "attic")},
    }
    can_do = {"capabilities": ["ingest.jdbc"], "nodes": [*nodes]}
    executors = {FIRST: can_do, SECOND: {**can_do, "cost": 5}}
    topology, pack = folder / "topology.yaml", folder / "pack"
    topology.write_text(yaml.safe_dump({"nodes": nodes, "executors": executors}), encoding="utf-8")
    pack.mkdir()
    (pack / "pack.yaml").write_text("pack: torture\nversion: '1'\n", encoding="utf-8")
    (pack / "tables.template").write_text(TEMPLATE, encoding="utf-8")
    return topology, pack


def create(flows: FlowManager, node: str) -> FlowKey:
    key = FlowKey("sales", f"to_{node}")
    options = {"flow_group": key.group, "flow_name": key.name, "source": "shop", "destinations": [node]}
    flows.create(PERSON, read_flow_config({**options, "template_uris": ["FS:///torture/tables.template"]}))
    return key


def await_status(
    shop: TicketShop, flows: FlowManager, key: FlowKey, is_meant: Callable[[FlowStatus], object]
) -> JobStatus:
    until = time.monotonic() + WAIT_S_MAX
    while not is_meant(status := flows.get_status(key)):
        assert time.monotonic() < until, f"{status}\n{shop.say()}"
        time.sleep(0.2)
    return status.jobs[0]


def test_what_a_killed_executor_ran_and_what_it_had_not_begun_is_done_by_another_one(ticket_shop: TicketShop) -> None:
    shop = ticket_shop
    schema.upgrade(shop.engine, history=SERVICE_HISTORY)
    topology, pack = write_files(shop.folder)
    settings, packs = read_settings(shop.environment), [read_pack_at(pack)]
    with opening.open_service(settings, topology, packs, "multi_hop", {}, lambda _line: None) as opened:
        flows = opened.flows
        first = shop.serve("--slots", "1", "--claim-ttl", TTL_S, name=FIRST)
        with shop.source.connect() as blocking, blocking.transaction():
            # The first run waits for a table.
            blocking.execute("LOCK TABLE customers IN ACCESS EXCLUSIVE MODE")
            keys = [create(flows, "lake")]
            await_status(shop, flows, keys[0], lambda status: status.status is ExecutionStatus.RUNNING)
            keys.append(create(flows, "attic"))
            await_status(shop, flows, keys[1], lambda status: status.status is ExecutionStatus.ORCHESTRATED)
            first.send_signal(signal.SIGKILL)
            first.wait()
        shop.serve("--claim-ttl", TTL_S, name=SECOND)
        ended = [
            await_status(shop, flows, key, lambda status: status.status is ExecutionStatus.COMPLETE) for key in keys
        ]
        assert [(job.job_group, job.attempt) for job in ended] == [(SECOND, 2)] * 2, ended

    for job in ended:
        assert shop.lake_rows(job.job_name) == shop.source_rows()
    told: Counter[str] = Counter()
    with shop.engine.connect() as connection:
        for ticket_id in connection.exec_driver_sql("SELECT ticket_id FROM gobblin.job_ticket").scalars():
            told += shop.list_told(ticket_id)
    assert told == shop.list_sequences(), "each publication is told once"
