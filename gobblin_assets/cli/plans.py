"""A dry run as tables, and what is open before it."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from gobblin_assets.cli.output import print_table, say
from gobblin_assets.commit.driver import describe_ways_out
from gobblin_assets.commit.sequence import SequenceRecord
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.dry_run import PlannedSlice
from gobblin_assets.run.run_values import RunRequest
from gobblin_assets.run.stores import Stores

CHANGES_SHOWN_MAX: Final = 1_000
"""Lines of a plan's table of changes."""

UNITS_SHOWN_MAX: Final = 1_000
"""Lines of a plan's table of WorkUnits."""

OPEN_SHOWN_MAX: Final = 20


def list_open_lines(stores: Stores, request: RunRequest) -> Iterator[str]:
    """Publications of the selected datasets that are open: what is planned now comes after them."""
    known = stores.datasets.load(JobName(request.job.job), sorted(request.selection))
    found = stores.commits.find_unfinished(*(state.dataset_id for state in known.values())) if known else ()
    sealed = [each for each in found if each.state is not SequenceState.BUILDING]
    yield from map(_describe_open, sealed[:OPEN_SHOWN_MAX])
    if len(sealed) > OPEN_SHOWN_MAX:
        yield f"{len(sealed) - OPEN_SHOWN_MAX:,} more publications are open; `gobblin-assets commit list` shows them"


def _describe_open(sequence: SequenceRecord) -> str:
    said = f"sequence {sequence.sequence_id} of {sequence.label} is {sequence.state.value}"
    if sequence.state is SequenceState.BLOCKED:
        return f"{said}, and no run publishes {sequence.urn} before that: {describe_ways_out(sequence.sequence_id)}"
    act = "ends its abandonment" if sequence.state is SequenceState.ABANDONING else "completes it"
    return f"{said}: the next run {act} first (`gobblin-assets commit show {sequence.sequence_id}`)"


def print_plan(slices: Sequence[PlannedSlice], *, with_units: bool) -> None:
    """A file set of a copy is one WorkUnit, of which its changes say more."""
    if with_units:
        _print_units(slices)
    changes = list(_list_changes(slices))
    if changes or not with_units:
        columns = ("dataset", "partition", "action", "path", "bytes", "why")
        print_table("changes", columns, changes[:CHANGES_SHOWN_MAX])
    if len(changes) > CHANGES_SHOWN_MAX:
        say(f"only the first {CHANGES_SHOWN_MAX:,} of {len(changes):,} changes are shown; --json shows all")
    for each in slices:
        for line in filter(None, (*each.notes, each.error)):
            say(f"{each.urn}{'' if each.partition is None else f' [{each.partition}]'}: {line}")


def _print_units(slices: Sequence[PlannedSlice]) -> None:
    columns = ("dataset", "partition", "mode", "reader", "key", "unit", "task", "interval", "rows (estimated)")
    rows = (
        (
            *(each.urn, each.partition, each.mode, each.reader or None),
            *(unit.key, unit.number, unit.multi_work_unit),
            *(unit.interval or "everything", unit.estimated_row_count),
        )
        for each in slices
        for unit in each.units
    )
    print_table("WorkUnits", columns, list(islice(rows, UNITS_SHOWN_MAX)))
    count = sum(len(each.units) for each in slices)
    if count > UNITS_SHOWN_MAX:
        say(f"only the first {UNITS_SHOWN_MAX:,} of {count:,} WorkUnits are shown; --json shows all")


def _list_changes(slices: Sequence[PlannedSlice]) -> Iterator[tuple[object, ...]]:
    """Lines of the table. A directory above several file sets is made once, and shown with the first of them."""
    shown: set[tuple[str, str]] = set()
    for each in slices:
        for change in each.changes:
            name = each.urn, change.path
            if name not in shown:
                shown.add(name)
                yield each.urn, each.partition, change.action, change.path or ".", change.size_bytes, change.why
