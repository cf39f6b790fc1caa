from collections.abc import Iterator

import pytest

from tests.simulation.world import stepped


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    with stepped():
        yield
