"""The tools that are compared: how each loads tables, for the first time and again, and what the loads cost."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from benchmarks.peers.environments import DLT, INGESTR, SLING, make_environment
from benchmarks.peers.warm_process import WarmProcess
from benchmarks.peers.watching import Spent, spent_of, watch
from benchmarks.world import SOURCE, World, environment_of
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.spark.connect_server import ConnectServer, start_connect, stop_connect
from gobblin_assets.spark.spark_settings import SparkSettings

LOAD_S_MAX: Final = 1_800.0

OURS: Final = "ours, as typed"
"""The command by default: Dagster is told."""
OURS_ALONE: Final = "ours, --no-dagster"
_ALONE: Final = "--no-dagster"

_DLT_SCRIPT: Final = Path(__file__).with_name("dlt_load.py")


@dataclass(frozen=True, slots=True)
class Command:
    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tool:
    """``load(tables, folder, above)`` loads new rows of the tables into ``folder``; RuntimeError if it fails.

    ``above``: the highest ``id`` that was loaded before; tools that keep state themselves do not need it. ``close``
    ends what the tool keeps running between loads.
    """

    name: str
    load: Callable[[Sequence[str], Path, int], Spent]
    close: Callable[[], object] = lambda: None


def url_of(server: EmbeddedServer) -> str:
    host, port = server.tcp_url(SOURCE).partition("@")[2].partition("/")[0].split(":")
    return f"postgresql://{server.user}:{server.password()}@{host}:{port}/{SOURCE}"


def list_tools(world: World, folder: Path) -> tuple[list[Tool], list[str]]:
    """The tools that can be installed, and a line about each of the others."""
    tools = [*list_ours(world), _spark(world)]
    missing = []
    makers: dict[str, tuple[tuple[str, ...], Callable[[Path], list[Tool]]]] = {
        "dlt": (DLT, lambda programs: list_dlt(world, programs)),
        "ingestr": (INGESTR, lambda programs: [_ingestr(world, programs)]),
        "Sling": (SLING, lambda programs: [_sling(world, programs)]),
    }
    for name, (requirements, make) in makers.items():
        try:
            tools += make(make_environment(folder / name, requirements))
        except RuntimeError as error:
            missing.append(f"{name} could not be installed: {error}")
    return tools, missing


def list_ours(world: World) -> list[Tool]:
    """Ours: in fresh processes, with Dagster and without; on a warm Spark server; and inside a warm process."""
    connect = _WarmSpark(world)
    warm = WarmProcess(
        [sys.executable, "-m", "benchmarks.peers.our_load"],
        environment_of(world),
        lambda folder: [_write_job(["public.warm_up"], folder, "arrow")],
    )
    return [
        _by_commands(OURS, lambda tables, folder, _above: [_run_ours(world, tables, folder, "arrow")]),
        _by_commands(OURS_ALONE, lambda tables, folder, _above: [_run_ours(world, tables, folder, "arrow", _ALONE)]),
        Tool(
            "ours, in a warm process",
            lambda tables, folder, _above: warm.load([_write_job(_named(tables), folder, "arrow")], folder),
            warm.close,
        ),
        _by_commands(
            "ours, by Spark's JDBC", lambda tables, folder, _above: [_run_ours(world, tables, folder, "jdbc", _ALONE)]
        ),
        Tool(
            "ours, by Spark's JDBC, warm server",
            lambda tables, folder, _above: _spend(
                [_run_ours(world, tables, folder, "jdbc", _ALONE, "--remote", connect.start())], more=[connect.pid]
            ),
            connect.stop,
        ),
    ]


class _WarmSpark:
    """A Connect server that is started once, in a home of its own, so that other tools do not find it."""

    def __init__(self, world: World) -> None:
        self._home = world.home / "warm_spark"
        self._server: ConnectServer | None = None

    def start(self) -> str:
        if self._server is None:
            settings = SparkSettings(self._home / "spark", master="local[2]", capabilities=("postgres",))
            self._server = start_connect(self._home, settings, lambda _line: None)
        return self._server.url

    @property
    def pid(self) -> int:
        self.start()
        return 0 if self._server is None else self._server.pid

    def stop(self) -> None:
        if self._server is not None:
            stop_connect(self._home)


def _named(tables: Sequence[str]) -> list[str]:
    return [f"public.{name}" for name in tables]


def _write_job(tables: Sequence[str], folder: Path, reader: str) -> str:
    job = folder / "job.yaml"
    job.parent.mkdir(parents=True, exist_ok=True)
    options = {
        "job": f"peers_{folder.parent.name}_{folder.name}",
        "source": {"connection": "bench", "reader": reader},
        "destination": str(folder / "lake"),
        "defaults": {"extract": "append_only", "watermark": {"column": "id"}},
        "datasets": [{"table": name} for name in tables],
    }
    job.write_text(yaml.safe_dump(options), encoding="utf-8")
    return str(job)


def _run_ours(world: World, tables: Sequence[str], folder: Path, reader: str, *more: str) -> Command:
    program = Path(sys.executable).with_name("gobblin-assets")
    job = _write_job(_named(tables), folder, reader)
    return Command([str(program), "run", job, *more], environment_of(world))


def _by_commands(name: str, load: Callable[[Sequence[str], Path, int], Sequence[Command]]) -> Tool:
    return Tool(name, lambda tables, folder, above: _spend(load(tables, folder, above)))


def _spend(commands: Sequence[Command], more: Sequence[int] = ()) -> Spent:
    """What the commands spend, one after another. ``more``: running processes that work for them."""
    before = sum(spent_of(pid)[0] for pid in more)
    spent = [watch(each.words, each.environment, timeout_s=LOAD_S_MAX) for each in commands]
    return Spent(
        sum(each.wall_s for each in spent),
        sum(each.processor_s for each in spent) + sum(spent_of(pid)[0] for pid in more) - before,
        max(each.peak_bytes for each in spent) + sum(spent_of(pid)[1] for pid in more),
    )


def _spark(world: World) -> Tool:
    def load(tables: Sequence[str], folder: Path, above: int) -> list[Command]:
        server = world.server
        words = [server.jdbc_url(SOURCE), server.user, server.password(), str(folder / "lake"), _find_jar()]
        return [Command([sys.executable, "-m", "benchmarks.peers.spark_load", *words, str(above), *tables], os.environ)]

    return _by_commands("a Spark script (no state)", load)


def _find_jar() -> str:
    found = sorted(Path("~/.ivy2.5.2/jars").expanduser().glob("org.postgresql_postgresql-*.jar"))
    found += sorted(Path("~/.ivy2/jars").expanduser().glob("org.postgresql_postgresql-*.jar"))
    if not found:
        raise RuntimeError("the driver's jar is not there; run `make demo` once")
    return str(found[-1])


def list_dlt(world: World, programs: Path) -> list[Tool]:
    """dlt with ConnectorX first; ``programs`` of its environment."""
    program = [str(programs / "python"), str(_DLT_SCRIPT)]
    environment = {**os.environ, "RUNTIME__DLTHUB_TELEMETRY": "false"}

    def arguments(tables: Sequence[str], folder: Path, backend: str) -> list[str]:
        folder.mkdir(parents=True, exist_ok=True)
        return [url_of(world.server), str(folder), backend, *tables]

    def fresh(backend: str) -> Tool:
        return _by_commands(
            f"dlt, {backend}",
            lambda tables, folder, _above: [Command([*program, *arguments(tables, folder, backend)], environment)],
        )

    warm = WarmProcess(program, environment, lambda folder: arguments(["warm_up"], folder, "connectorx"))
    return [
        fresh("connectorx"),
        Tool(
            "dlt, connectorx, in a warm process",
            lambda tables, folder, _above: warm.load(arguments(tables, folder, "connectorx"), folder),
            warm.close,
        ),
        fresh("pyarrow"),
    ]


def _ingestr(world: World, programs: Path) -> Tool:
    def load(tables: Sequence[str], folder: Path, above: int) -> list[Command]:
        folder.mkdir(parents=True, exist_ok=True)
        return [
            Command(
                [
                    *(str(programs / "ingestr"), "ingest", "--yes", "--progress", "log"),
                    *("--source-uri", f"{url_of(world.server)}?sslmode=disable", "--source-table"),
                    f"query:SELECT * FROM public.{name} WHERE id > {above}",
                    *("--dest-uri", f"parquet://{folder}/{name}-{above}.parquet", "--dest-table", f"public.{name}"),
                ],
                os.environ,
            )
            for name in tables
        ]

    return _by_commands("ingestr (no state)", load)


def _sling(world: World, programs: Path) -> Tool:
    binary = next(programs.parent.rglob("sling-linux-amd64"))

    def load(tables: Sequence[str], folder: Path, above: int) -> list[Command]:
        folder.mkdir(parents=True, exist_ok=True)
        return [
            Command(
                [
                    *(str(binary), "run", "--src-conn", f"{url_of(world.server)}?sslmode=disable"),
                    *("--src-stream", f"SELECT * FROM public.{name} WHERE id > {above}"),
                    *("--tgt-object", f"file://{folder}/{name}-{above}.csv"),
                ],
                os.environ,
            )
            for name in tables
        ]

    return _by_commands("Sling, to CSV (no state)", load)
