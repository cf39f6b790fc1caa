"""Each mutant fits the present code. This test is needed since `make proof`, which hunts them, does not run daily."""

import pytest

from tests.simulation.mutants import IN_AN_ADAPTER, IN_THE_SIMULATED_WORLD, Mutant


@pytest.mark.parametrize("mutant", [*IN_THE_SIMULATED_WORLD, *IN_AN_ADAPTER], ids=lambda each: each.name)
def test_a_mutant_can_be_made_and_is_gone_afterwards(mutant: Mutant) -> None:
    for _time in range(2):
        with mutant.change():
            pass
