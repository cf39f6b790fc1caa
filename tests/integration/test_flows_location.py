"""The code location ``flows``: the assets of the jobs that came as tickets, and runs of them."""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._grpc.client import DagsterGrpcClient
from sqlalchemy import text

from gobblin_assets.dagster.flows_location import build_flows_definitions, choose_flows, defs, find_flows
from gobblin_assets.dagster.flows_reloading import FlowsWatch, ServerAddress, find_reloadable, watch_flows
from gobblin_assets.dagster.runner_location import EXECUTOR_VARIABLE
from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.model.job_ticket import TicketId, TicketShape, TicketVerb
from gobblin_assets.settings import DATABASE_URL_VARIABLE
from tests.support.dagster_instance import open_instance
from tests.support.ticket_shop import TicketShop, ticket_shop

__all__ = ["ticket_shop"]

pytestmark = pytest.mark.turns(of=4)

MONTHS = ["2024-01-01", "2024-02-01", "2024-03-01"]
ORDERS, CUSTOMERS = dg.AssetKey(["shop", "public.orders"]), dg.AssetKey(["shop", "public.customers"])


@pytest.fixture
def variables(ticket_shop: TicketShop, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    for name, value in ticket_shop.environment.items():
        monkeypatch.setenv(name, value)
    return {**ticket_shop.environment, EXECUTOR_VARIABLE: "lake"}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with open_instance(tmp_path / "instance") as made:
        yield made


def load(shop: TicketShop, variables: Mapping[str, str]) -> dg.Definitions:
    definitions = build_flows_definitions(find_flows(shop.stores.tickets), variables)
    dg.Definitions.validate_loadable(definitions)
    return definitions


def materialize(
    definitions: dg.Definitions, instance: dg.DagsterInstance, *keys: dg.AssetKey, **options: Any
) -> dg.ExecuteInProcessResult:
    job = definitions.resolve_implicit_global_asset_job_def()
    return job.get_subset(asset_selection=set(keys)).execute_in_process(instance=instance, **options)


def copy_of(shop: TicketShop, name: str, source: str) -> dict[str, Any]:
    destination = str(shop.folder / name)
    return {"job": name, "kind": "distcp", "source": source, "destination": destination, "datasets": [{"urn": "all"}]}


def partitions_of(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[str | None]:
    records = instance.fetch_materializations(key, limit=100, ascending=True).records
    return [each.asset_materialization.partition for each in records if each.asset_materialization is not None]


@pytest.mark.every_run
def test_a_backfill_of_three_partitions_is_one_ticket_of_its_own_and_publishes_them_once(
    ticket_shop: TicketShop, variables: Mapping[str, str], instance: dg.DagsterInstance
) -> None:
    """The job came by a ticket to another executor, which nobody ran. Then a dataset without partitions."""
    ticket_shop.send()
    definitions = load(ticket_shop, variables)
    tags = {
        "dagster/asset_partition_range_start": MONTHS[0],
        "dagster/asset_partition_range_end": MONTHS[-1],
        "dagster/backfill": "three",
    }
    done = materialize(definitions, instance, ORDERS, tags=tags)
    assert done.success
    assert partitions_of(instance, ORDERS) == MONTHS
    assert materialize(definitions, instance, CUSTOMERS).success
    assert ticket_shop.lake_rows() == ticket_shop.source_rows()
    assert set(ticket_shop.list_sequences().values()) == {1}

    (ticket_id,) = list_own(ticket_shop, done.run_id)
    reports = ticket_shop.list_reports(ticket_id)
    assert [each.kind.value for each in reports] == ["claimed", "running", *["published"] * 3, "ended"]
    assert reports[1].details["dagster_run_id"] == done.run_id
    assert reports[-1].details["state"] == "COMPLETE"
    assert [each.dagster_run_id for each in ticket_shop.stores.runs.list_lapsed(None, limit=9)] == []
    # Nothing is new in what is published.
    assert materialize(definitions, instance, ORDERS, tags=tags).success
    assert ticket_shop.lake_rows() == ticket_shop.source_rows()
    failed = materialize(definitions, instance, ORDERS, tags={"dagster/partition": "1999-01-01"}, raise_on_error=False)
    assert not failed.success
    ticket_shop.stores.drains.begin("ann")
    failed = materialize(definitions, instance, ORDERS, tags=tags, raise_on_error=False)
    assert (failed.success, list_own(ticket_shop, failed.run_id)) == (False, []), "the log drains"


def list_own(shop: TicketShop, dagster_run_id: str) -> list[TicketId]:
    with shop.engine.connect() as connection:
        found = connection.execute(
            text("SELECT ticket_id FROM gobblin.ticket_claim WHERE owner LIKE :owner"), {"owner": f"%{dagster_run_id}"}
        )
        return [TicketId(each) for each in found.scalars()]


def test_the_assets_are_those_of_the_last_tickets_with_the_datasets_that_copies_read(
    ticket_shop: TicketShop, variables: Mapping[str, str]
) -> None:
    """A chain of two jobs, a circle of two, a worker, one that was removed, and one that can't be loaded."""
    lake = ticket_shop.make_job()
    ticket_shop.send(lake)
    ticket_shop.send(copy_of(ticket_shop, "mirror", f"{lake['destination']}/public.orders"))
    for one, other in (("east", "west"), ("west", "east")):
        ticket_shop.send(copy_of(ticket_shop, one, str(ticket_shop.folder / other)))
    ticket_shop.send(ticket_shop.make_job("follower"), verb=TicketVerb.UPDATE, shape=TicketShape.WORKER)
    ticket_shop.send(ticket_shop.make_job("gone"), verb=TicketVerb.UPDATE, shape=TicketShape.WORKER)
    ticket_shop.send(ticket_shop.make_job("gone"), verb=TicketVerb.DELETE, shape=TicketShape.WORKER)
    ticket_shop.send({**ticket_shop.make_job("broken"), "colour": "red"})

    flows = find_flows(ticket_shop.stores.tickets)
    definitions = load(ticket_shop, variables)

    graph = definitions.resolve_asset_graph()
    assert {key.path[0] for key in graph.materializable_asset_keys} == {"shop", "mirror", "east", "west"}
    assert dg.AssetKey(["follower", "public.orders"]) in graph.external_asset_keys
    assert ORDERS in graph.get(dg.AssetKey(["mirror", "all"])).parent_keys
    assert graph.get(ORDERS).group_name == "tests"
    assert graph.get(ORDERS).metadata["gobblin/flow"] == "shop"
    (said,) = flows.refused
    assert said.startswith("broken: ")
    assert "colour" in said
    (sensor,) = definitions.sensors or []
    assert "colour" in str(sensor.description)
    few = find_flows(ticket_shop.stores.tickets, assets_max=2)
    assert len(few.jobs) < 3
    assert few.refused[0] == "4 more jobs than 2"


def test_an_executor_without_a_name_is_refused(ticket_shop: TicketShop) -> None:
    with pytest.raises(RejectedError, match=EXECUTOR_VARIABLE):
        build_flows_definitions(find_flows(ticket_shop.stores.tickets), {})


def test_a_new_ticket_is_news_only_if_it_says_something_else(ticket_shop: TicketShop) -> None:
    tickets = ticket_shop.stores.tickets
    ticket_shop.send()
    watch = FlowsWatch(find_flows(tickets).loaded, choose_flows)
    assert not watch.has_news(tickets)
    ticket_shop.send()
    assert not watch.has_news(tickets), "the job is as it was"
    ticket_shop.send({**ticket_shop.make_job(), "description": "other"})
    assert watch.has_news(tickets)
    watch = FlowsWatch(find_flows(tickets).loaded, choose_flows)
    ticket_shop.send(ticket_shop.make_job("more"))
    assert watch.has_news(tickets)
    few = find_flows(tickets, assets_max=1)
    assert not FlowsWatch(few.loaded, partial(choose_flows, assets_max=1)).has_news(tickets)


@pytest.mark.usefixtures("variables")
def test_who_watches_asks_for_reloads_until_another_process_has_loaded_the_code(ticket_shop: TicketShop) -> None:
    watch = FlowsWatch(find_flows(ticket_shop.stores.tickets).loaded, choose_flows)
    ticket_shop.send()
    answers = [True, False, False]
    watch_flows(watch, answers.pop, pause_s=0.01)
    assert answers == []


def test_without_the_log_there_are_no_flows_until_it_answers_and_a_run_fails(
    ticket_shop: TicketShop, variables: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(EXECUTOR_VARIABLE, variables[EXECUTOR_VARIABLE])
    ticket_shop.send()
    with monkeypatch.context() as away:
        away.setenv(DATABASE_URL_VARIABLE, "postgresql://nobody@127.0.0.1:1/none")
        definitions = defs()
        with (
            DefinitionsLoadContext.scoped(DefinitionsLoadContext(DefinitionsLoadType.RECONSTRUCTION)),
            pytest.raises(RetryableError),
        ):
            defs()
    (sensor,) = definitions.sensors or []
    assert "until the log can be read" in str(sensor.description)
    assert not definitions.assets
    assert FlowsWatch(None, choose_flows).has_news(ticket_shop.stores.tickets)
    assert ORDERS in defs().resolve_asset_graph().materializable_asset_keys


@pytest.mark.parametrize(
    ("command", "address"),
    [
        ("python -m dagster code-server start --socket /tmp/s -m x", ServerAddress("localhost", None, "/tmp/s")),
        ("gobblin-assets dagster code-server start -p 4000 -h 0.0.0.0", ServerAddress("0.0.0.0", 4000, None)),
        ("dagster code-server start --port=4000", ServerAddress("localhost", 4000, None)),
        ("dagster api grpc --port 4000", None),
        ("dagster code-server start", None),
    ],
)
def test_a_server_that_can_be_reloaded_is_known_by_its_command(command: str, address: ServerAddress | None) -> None:
    assert find_reloadable(command.split()) == address


@pytest.mark.thorough
def test_a_code_server_loads_itself_again_when_a_ticket_brings_a_job(ticket_shop: TicketShop, tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    command = ["-m", "dagster", "code-server", "start", "--socket", str(socket), "-m", "tests.support.flows_in_a_hurry"]
    variables = {**ticket_shop.environment, EXECUTOR_VARIABLE: "lake", "PYTHONPATH": str(Path(__file__).parents[2])}
    ticket_shop.send()
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen([sys.executable, *command], env=variables, stdout=log, stderr=log, cwd=tmp_path)
    ticket_shop.started.append(server)
    client = DagsterGrpcClient(socket=str(socket))
    first = await_server(client, server, "", tmp_path)
    ticket_shop.send(ticket_shop.make_job("more"))
    await_server(client, server, first, tmp_path)
    client.shutdown_server()
    server.wait(60)


def await_server(client: DagsterGrpcClient, server: "subprocess.Popen[bytes]", other: str, folder: Path) -> str:
    """The id of the server that answers, once it is not ``other``."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        assert server.poll() is None, (folder / "server.log").read_text(encoding="utf-8")
        with suppress(DagsterUserCodeUnreachableError):
            found = client.get_server_id()
            if found != other:
                return found
        time.sleep(0.2)
    raise AssertionError((folder / "server.log").read_text(encoding="utf-8"))
