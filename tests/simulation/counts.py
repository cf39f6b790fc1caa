"""How often the process of each scenario calls each port: this measures what is tried."""

import json
from collections import Counter
from pathlib import Path

from tests.simulation.copy_scenarios import COPY_SCENARIOS
from tests.simulation.exploring import list_calls
from tests.simulation.loaded_rows import LOADED_ROWS_SCENARIOS
from tests.simulation.object_scenarios import OBJECT_SCENARIOS
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.sink_faults import SINK_SCENARIOS
from tests.simulation.stored_rows import STORED_ROWS_SCENARIOS
from tests.simulation.world import stepped

Counts = dict[str, dict[str, int]]

_FILE = Path(__file__).with_name("counts.json")


def read_counts() -> Counts:
    found: Counts = json.loads(_FILE.read_text(encoding="utf-8"))
    return found


def _write_counts() -> None:
    of_rows = (*STORED_ROWS_SCENARIOS, *LOADED_ROWS_SCENARIOS)
    scenarios = (*SCENARIOS, *COPY_SCENARIOS, *OBJECT_SCENARIOS, *of_rows)
    counts = {each.name: dict(sorted(Counter(list_calls(each, each.prepare())).items())) for each in scenarios}
    counts |= {each.name: dict(sorted(Counter(each.list_calls()).items())) for each in SINK_SCENARIOS}
    _FILE.write_text(json.dumps(counts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with stepped():
        _write_counts()
