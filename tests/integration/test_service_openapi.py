"""The REST API keeps what its OpenAPI document says, whatever is sent: requests that schemathesis makes up."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gobblin_assets.db.embedded import EmbeddedServer
from tests.support.database_pool import DatabasePool
from tests.support.running_service import RunningService, run_own_service

OPERATIONS_MIN = 25
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def service(
    server: EmbeddedServer, service_pool: DatabasePool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    """Requests that are made up may leave anything behind, so no other test uses this service."""
    with run_own_service(server, service_pool, tmp_path_factory.mktemp("service")) as running:
        yield running


def try_operations(service: RunningService, examples: int) -> int:
    schema = schemathesis.openapi.from_url(f"{service.url}/api/v1/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    for operation in operations:

        @seed(1)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.generate],
        )
        @given(case=operation.as_strategy())
        def keep_to_the_document(case: schemathesis.Case) -> None:
            case.call_and_validate(checks=CHECKS, headers={"Origin": service.url})

        keep_to_the_document()
    return len(operations)


def test_answers_are_those_of_the_document(service: RunningService) -> None:
    document = service.ask("GET", "/api/v1/openapi.json").json
    assert document["openapi"].startswith("3.1")
    assert try_operations(service, examples=3) >= OPERATIONS_MIN


@pytest.mark.thorough
def test_many_answers_are_those_of_the_document(service: RunningService) -> None:
    assert try_operations(service, examples=60) >= OPERATIONS_MIN
