"""Mutants of what a run does about datasets that another process holds."""

from typing import Final

from gobblin_assets.model.state import DatasetOutcome
from gobblin_assets.run import runner
from gobblin_assets.run.run_values import DatasetReport
from tests.simulation.mutant import Mutant, patched

_TURNS: Final = ("tests/simulation/test_turns.py",)


def _skipped_is_good(report: DatasetReport) -> bool:
    return report.outcome in {DatasetOutcome.COMMITTED, DatasetOutcome.PARTIAL, DatasetOutcome.SKIPPED}


OF_TURNS: Final = (
    Mutant("SKIPPED as success", patched(DatasetReport, "is_good", property(_skipped_is_good)), _TURNS),
    Mutant("nobody waits for a turn", patched(runner._Run, "_decide_wait_s", lambda _run: 0.0), _TURNS),
)
