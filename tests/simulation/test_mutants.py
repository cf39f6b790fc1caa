"""Each mutant fits the present code. This test is needed since `make proof`, which hunts them, does not run daily."""

import pytest

from tests.simulation.copy_mutants import IN_COPY_HISTORIES, IN_THE_COPY_WORLD
from tests.simulation.loaded_rows import IN_THE_WORLD_OF_LOADED_ROWS
from tests.simulation.marked_mutants import IN_MARKED_HISTORIES
from tests.simulation.mutant import Mutant
from tests.simulation.mutants import IN_AN_ADAPTER, IN_THE_SIMULATED_WORLD
from tests.simulation.object_mutants import IN_OBJECT_HISTORIES, IN_THE_OBJECT_WORLD
from tests.simulation.service_mutants import IN_SERVICE_HISTORIES
from tests.simulation.sink_mutants import IN_SINK_HISTORIES, IN_SINK_MOVES
from tests.simulation.slot_mutants import IN_SLOT_HISTORIES
from tests.simulation.stored_rows import IN_THE_WORLD_OF_STORED_ROWS

MUTANTS = [
    *IN_THE_SIMULATED_WORLD,
    *IN_THE_COPY_WORLD,
    *IN_COPY_HISTORIES,
    *IN_THE_OBJECT_WORLD,
    *IN_OBJECT_HISTORIES,
    *IN_THE_WORLD_OF_STORED_ROWS,
    *IN_THE_WORLD_OF_LOADED_ROWS,
    *IN_SINK_HISTORIES,
    *IN_SINK_MOVES,
    *IN_SLOT_HISTORIES,
    *IN_MARKED_HISTORIES,
    *IN_SERVICE_HISTORIES,
    *IN_AN_ADAPTER,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_a_mutant_can_be_made_and_is_gone_afterwards(mutant: Mutant) -> None:
    for _time in range(2):
        with mutant.change():
            pass
