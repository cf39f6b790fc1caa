"""A flow with a schedule, from its slot to what it has published: service, executor and database are the real ones."""

import datetime as dt
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from gobblin_assets.db.embedded import EmbeddedServer
from tests.support.database_pool import DatabasePool
from tests.support.running_service import RunningService
from tests.support.service_shop import DAYS, ServiceShop, run_service_shop

WAIT_S_MAX = 150
PATH = "/api/v1/flows/sales/orders"


@pytest.fixture(scope="module")
def shop(
    server: EmbeddedServer, service_pool: DatabasePool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceShop]:
    with run_service_shop(server, service_pool, tmp_path_factory.mktemp("shop")) as made:
        yield made


def describe(shop: ServiceShop, **more: Any) -> Mapping[str, Any]:
    orders = {
        "table": "public.orders",
        "primary_key": ["id"],
        "watermark_column": "at",
        "partitions": "daily",
        "start": shop.start.isoformat(),
    }
    return {
        "flow_group": "sales",
        "flow_name": "orders",
        "source": "shop",
        "destinations": ["lake"],
        "parameters": {"datasets": [orders]},
        **more,
    }


def wait_for(service: RunningService, path: str, status: str) -> Any:
    end = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < end:
        answer = service.ask("GET", path)
        if answer.status == 200 and answer.json["status"] in {status, "FAILED"}:
            assert answer.json["status"] == status, answer.text
            return answer.json
        time.sleep(0.1)
    raise AssertionError(service.ask("GET", path).text)


def run(service: RunningService, **asked: Any) -> Any:
    answer = service.ask("POST", f"{PATH}:run", asked)
    assert answer.status == 201, answer.text
    return wait_for(service, f"{PATH}/executions/{answer.json['execution_id']}", "COMPLETE")


def test_a_flow_starts_by_the_clock_and_takes_all_days_that_are_missing(shop: ServiceShop) -> None:
    service = shop.service
    slot = (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=5)).replace(microsecond=0)
    made = service.ask("POST", "/api/v1/flows", describe(shop, schedule=f"{slot.second} {slot.minute} * * * ?"))
    assert made.status == 201, made.text
    assert service.ask("GET", f"{PATH}/status").status == 404, "it has not run"

    done = wait_for(service, f"{PATH}/status", "COMPLETE")
    assert dt.datetime.fromisoformat(done["started_at"]) - slot < dt.timedelta(seconds=10)
    (job,) = done["jobs"]
    assert job["processed_count"] == 2 * DAYS
    dataset = service.ask("GET", f"/api/v1/datasets/{job['job_name']}/public.orders").json
    # Yesterday has no orders.
    assert len(dataset["partitions"]) == DAYS + 1

    (started,) = service.ask("GET", f"{PATH}/slots").json
    assert (started["state"], started["count"], started["execution_id"]) == ("RUN", 1, done["execution_id"])
    assert dt.datetime.fromisoformat(started["at"]) == slot
    assert "Starts by the schedule" in service.ask("GET", "/ui/flows/sales/orders").text

    refused = service.ask("POST", f"{PATH}:run", {"ranges": [["2027-01-01", "2054-05-18"]]})
    assert (refused.status, refused.json["field"]) == (422, "ranges")
    assert "more than 1,000 partitions of public.orders" in refused.json["detail"]

    first = shop.start.isoformat()
    (job,) = run(service, partitions=[first])["jobs"]
    assert (job["processed_count"], job["message"]) == (0, "nothing is missing")
    (job,) = run(service, partitions=[first], mode="refresh")["jobs"]
    assert job["processed_count"] == 2
