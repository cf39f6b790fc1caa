"""A pytest plugin: the whole test session runs with the mutant that GOBBLIN_MUTANT names."""

import os

import pytest

from tests.simulation.mutants import IN_AN_ADAPTER

VARIABLE = "GOBBLIN_MUTANT"


def pytest_configure(config: pytest.Config) -> None:
    (mutant,) = [each for each in IN_AN_ADAPTER if each.name == os.environ[VARIABLE]]
    change = mutant.change()
    change.__enter__()
    config.add_cleanup(lambda: change.__exit__(None, None, None))
