from collections.abc import Iterator

import pytest

from tests.simulation import world
from tests.simulation.world import stepped
from tests.support.kinds import COMBINATIONS


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    with stepped():
        yield


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.cls is None:
        metafunc.parametrize("combination", COMBINATIONS, indirect=True, scope="module", ids="-".join)


@pytest.fixture(scope="module", autouse=True)
def combination(request: pytest.FixtureRequest) -> Iterator[None]:
    """The job kind and the destination of new worlds: each suite runs over every pair.

    Hypothesis' machines, which take no parameters, run over the first pair.
    """
    before, world.COMBINATION = world.COMBINATION, getattr(request, "param", COMBINATIONS[0])
    yield
    world.COMBINATION = before
