"""The tools that are compared: how each loads tables, for the first time and again."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from benchmarks.peers.environments import DLT, INGESTR, SLING, make_environment
from benchmarks.world import SOURCE, World
from gobblin_assets.db.embedded import EmbeddedServer

_DLT_SCRIPT: Final = Path(__file__).with_name("dlt_load.py")


@dataclass(frozen=True, slots=True)
class Command:
    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tool:
    """``load(tables, folder, above)``: the commands that bring what is new of these into ``folder``.

    ``above``: the highest ``id`` that was loaded before; tools that keep state themselves take no notice.
    """

    name: str
    load: Callable[[Sequence[str], Path, int], Sequence[Command]]


def url_of(server: EmbeddedServer) -> str:
    host, port = server.tcp_url(SOURCE).partition("@")[2].partition("/")[0].split(":")
    return f"postgresql://{server.user}:{server.password()}@{host}:{port}/{SOURCE}"


def list_tools(world: World, folder: Path) -> tuple[list[Tool], list[str]]:
    """Those that can be had, and what is to be said of the others."""
    tools = [_ours(world), _ours(world, reader="jdbc"), _spark(world)]
    missing = []
    makers: dict[str, tuple[tuple[str, ...], Callable[[Path], list[Tool]]]] = {
        "dlt": (DLT, lambda programs: [_dlt(world, programs, backend) for backend in ("connectorx", "pyarrow")]),
        "ingestr": (INGESTR, lambda programs: [_ingestr(world, programs)]),
        "Sling": (SLING, lambda programs: [_sling(world, programs)]),
    }
    for name, (requirements, make) in makers.items():
        try:
            tools += make(make_environment(folder / name, requirements))
        except RuntimeError as error:
            missing.append(f"{name} could not be had: {error}")
    return tools, missing


def _ours(world: World, *, reader: str = "arrow") -> Tool:
    def load(tables: Sequence[str], folder: Path, _above: int) -> list[Command]:
        job = folder / "job.yaml"
        job.parent.mkdir(parents=True, exist_ok=True)
        job.write_text(
            yaml.safe_dump(
                {
                    "job": f"peers_{folder.parent.name}_{folder.name}",
                    "source": {"connection": "bench", "reader": reader},
                    "destination": str(folder / "lake"),
                    "defaults": {"extract": "append_only", "watermark": {"column": "id"}},
                    "datasets": [{"table": f"public.{name}"} for name in tables],
                }
            ),
            encoding="utf-8",
        )
        environment = {
            **os.environ,
            "GOBBLIN_HOME": str(world.home),
            "GOBBLIN_JDBC_BENCH_URL": world.server.jdbc_url(SOURCE),
            "GOBBLIN_JDBC_BENCH_USER": world.server.user,
            "GOBBLIN_JDBC_BENCH_PASSWORD": world.server.password(),
        }
        program = Path(sys.executable).with_name("gobblin-assets")
        return [Command([str(program), "run", str(job), "--no-dagster"], environment)]

    return Tool("ours" if reader == "arrow" else "ours, by Spark's JDBC", load)


def _spark(world: World) -> Tool:
    def load(tables: Sequence[str], folder: Path, above: int) -> list[Command]:
        server = world.server
        words = [server.jdbc_url(SOURCE), server.user, server.password(), str(folder / "lake"), _find_jar()]
        return [Command([sys.executable, "-m", "benchmarks.peers.spark_load", *words, str(above), *tables], os.environ)]

    return Tool("a Spark script (no state)", load)


def _find_jar() -> str:
    found = sorted(Path("~/.ivy2.5.2/jars").expanduser().glob("org.postgresql_postgresql-*.jar"))
    found += sorted(Path("~/.ivy2/jars").expanduser().glob("org.postgresql_postgresql-*.jar"))
    if not found:
        raise RuntimeError("the driver's jar is not there; run `make demo` once")
    return str(found[-1])


def _dlt(world: World, programs: Path, backend: str) -> Tool:
    def load(tables: Sequence[str], folder: Path, _above: int) -> list[Command]:
        folder.mkdir(parents=True, exist_ok=True)
        words = [str(programs / "python"), str(_DLT_SCRIPT), url_of(world.server), str(folder), backend]
        return [Command([*words, *tables], {**os.environ, "RUNTIME__DLTHUB_TELEMETRY": "false"})]

    return Tool(f"dlt, {backend}", load)


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

    return Tool("ingestr (no state)", load)


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

    return Tool("Sling, to CSV (no state)", load)
