"""Side by side with other tools: first loads and increments of tables of Postgres into files."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.tools import Tool, list_tools
from benchmarks.peers.watching import Spent
from benchmarks.tables import Options, Table, in_turns, seconds
from benchmarks.world import World

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Workload:
    """``tables`` are loaded; then ``more`` rows are added to each table, and the increment loads these rows."""

    title: str
    tables: Sequence[str]
    columns: str
    values: str
    rows: int
    more: int


def measure(world: World, options: Options) -> list[Table]:
    folder = world.home / "peers"
    tools, missing = list_tools(world, folder / "environments")
    make_tables(world, Workload("", ["warm_up"], "id bigint PRIMARY KEY", "n", 1_000, 0))
    tables = []
    try:
        for workload in list_workloads(quick=options.quick):
            place = folder / f"loads{len(tables)}"
            tables.append(measure_workload(world, workload, tools, place, options.runs))
            shutil.rmtree(place, ignore_errors=True)
    finally:
        for tool in tools:
            tool.close()
    if missing:
        tables.append(Table("Not measured", ("reason",), tuple((each,) for each in missing)))
    return tables


def plan_mixed(tables: Sequence[str], rows: int) -> Workload:
    """Tables of 12 columns of the usual types."""
    columns = """id bigint PRIMARY KEY, customer int, amount numeric(12,2), ratio double precision, is_new bool,
        day date, updated_at timestamptz, noted_at timestamp, country text, name text, note text, code varchar(12)"""
    values = """n, n % 100000, (n % 1000000) * 0.37, n * 0.25, n % 2 = 0, date '2020-01-01' + (n % 2000)::int,
        timestamptz '2024-01-01' + n * interval '1 second', timestamp '2024-01-01' + n * interval '1 second',
        'country ' || n % 200, 'customer number ' || n % 100000, 'a note that is longer than the others: ' || n,
        'c' || n % 1000"""
    title = f"{rows:,} rows x 12 columns" if len(tables) == 1 else f"{len(tables)} tables of {rows:,} rows"
    return Workload(title, tables, columns, values, rows, rows // 100)


def _plan_wide(rows: int) -> Workload:
    columns = ", ".join(f"c{number} {'int' if number % 2 else 'text'}" for number in range(199))
    values = ", ".join(f"n + {number}" if number % 2 else f"'text ' || n % {number + 7}" for number in range(199))
    return Workload(
        f"{rows:,} rows x 200 columns", ["wide"], f"id bigint PRIMARY KEY, {columns}", f"n, {values}", rows, rows // 100
    )


def list_workloads(*, quick: bool) -> list[Workload]:
    rows, small, count = (50_000, 1_000, 10) if quick else (5_000_000, 1_000, 200)
    names = [f"small_{number}" for number in range(count)]
    return [plan_mixed(["mixed"], rows), plan_mixed(names, small), _plan_wide(rows // 50)]


def measure_workload(world: World, workload: Workload, tools: Sequence[Tool], folder: Path, runs: int) -> Table:
    make_tables(world, workload)
    first: dict[str, list[Spent]] = {}
    again: dict[str, list[Spent]] = {}
    sizes: dict[str, int] = {}
    failed: dict[str, str] = {}
    by_name = {tool.name: tool for tool in tools}
    for turn, name in enumerate(in_turns(list(by_name), runs)):
        if name in failed:
            continue
        place = folder / f"{turn}"
        try:
            _delete_above(world, workload)
            first.setdefault(name, []).append(by_name[name].load(workload.tables, place, 0))
            _add(world, workload, workload.rows, workload.more)
            again.setdefault(name, []).append(by_name[name].load(workload.tables, place, workload.rows))
            sizes[name] = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
        except RuntimeError as error:
            failed[name] = str(error)
        shutil.rmtree(place, ignore_errors=True)
    rows = tuple(_row(name, first[name], again[name], sizes[name]) for name in by_name if name in again)
    return Table(
        workload.title,
        ("tool", "first load", "min to max", "processor", "peak memory", "increment of 1 %", "min to max", "files"),
        rows,
        tuple(f"{name} failed: {reason}" for name, reason in failed.items()),
    )


def _row(name: str, first: Sequence[Spent], again: Sequence[Spent], size: int) -> tuple[str, ...]:
    load, more = _by_wall(first), _by_wall(again)
    return (
        name,
        seconds(_median(load).wall_s),
        f"{load[0].wall_s:.1f} to {load[-1].wall_s:.1f}",
        seconds(_median(load).processor_s),
        f"{max(each.peak_bytes for each in first) / _MIB:,.0f} MiB",
        seconds(_median(more).wall_s),
        f"{more[0].wall_s:.1f} to {more[-1].wall_s:.1f}",
        f"{size / _MIB:,.1f} MiB",
    )


def _by_wall(spent: Sequence[Spent]) -> list[Spent]:
    return sorted(spent, key=lambda each: each.wall_s)


def _median(ordered: Sequence[Spent]) -> Spent:
    return ordered[len(ordered) // 2]


def make_tables(world: World, workload: Workload) -> None:
    with world.open_source() as connection:
        for name in workload.tables:
            connection.execute(f"DROP TABLE IF EXISTS public.{name}".encode())
            connection.execute(f"CREATE TABLE public.{name} ({workload.columns})".encode())
    _add(world, workload, 0, workload.rows)


def _add(world: World, workload: Workload, above: int, count: int) -> None:
    with world.open_source() as connection:
        for name in workload.tables:
            rows = f"generate_series({above + 1}::bigint, {above + count}::bigint) n"
            connection.execute(f"INSERT INTO public.{name} SELECT {workload.values} FROM {rows}".encode())
            connection.execute(f"VACUUM ANALYZE public.{name}".encode())


def _delete_above(world: World, workload: Workload) -> None:
    with world.open_source() as connection:
        for name in workload.tables:
            connection.execute(f"DELETE FROM public.{name} WHERE id > {workload.rows}".encode())
            connection.execute(f"VACUUM ANALYZE public.{name}".encode())
