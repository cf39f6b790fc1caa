"""Flows of a real service that `gobblin-assets dagster --executor` runs. Dagster starts once for all tests."""

from collections.abc import Iterator

import pytest

from gobblin_assets.db.embedded import EmbeddedServer
from tests.support.dagster_executor import DagsterExecutor, run_dagster_executor
from tests.support.database_pool import DatabasePool

pytestmark = [pytest.mark.timeout(600), pytest.mark.turns(of=3)]


@pytest.fixture(scope="module")
def world(server: EmbeddedServer, database_pool: DatabasePool) -> Iterator[DagsterExecutor]:
    with run_dagster_executor(server, database_pool) as running:
        yield running


def test_a_flow_runs_in_dagster_and_its_page_leads_there(world: DagsterExecutor) -> None:
    world.create_flow("orders", world.make_table("orders"))
    execution = world.await_flow("orders", "COMPLETE", "FAILED")
    assert execution["status"] == "COMPLETE", execution
    print(execution)
