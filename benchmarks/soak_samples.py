"""Samples of a soak: what its processes, servers, tables and folders take, once a minute, as lines of JSON."""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from benchmarks.process_times import read_stats
from benchmarks.soak_verdict import SERVERS, Sample
from benchmarks.soak_world import SoakWorld
from demo.flights_source import connect_source
from gobblin_assets.db.embedded import EmbeddedServer

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_KIB: Final = 1024
# Of the fields behind the command's name in /proc/PID/stat.
_PARENT, _USER, _SYSTEM, _STARTED = 1, 11, 12, 19

_DATABASES: Final = "SELECT datname, pg_database_size(oid) FROM pg_database WHERE NOT datistemplate"
_CONNECTIONS: Final = """
    SELECT coalesce(datname, '-') || ' ' || coalesce(nullif(application_name, ''), backend_type), count(*)
      FROM pg_stat_activity WHERE pid <> pg_backend_pid() GROUP BY 1"""
_TABLES: Final = """
    SELECT s.schemaname || '.' || s.relname, pg_total_relation_size(s.relid), n_live_tup, n_dead_tup,
           n_tup_ins, n_tup_upd, n_tup_del, autovacuum_count
      FROM pg_stat_user_tables s WHERE pg_total_relation_size(s.relid) > 0"""
_LOG_FILES: Final = "SELECT count(*), coalesce(sum(size), 0) FROM pg_ls_waldir()"
_SLOTS_AT_SOURCE: Final = """
    SELECT slot_name, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint FROM pg_replication_slots"""
_COUNTS: Final = """
    SELECT (SELECT count(*) FROM gobblin_service.flow_execution) AS executions,
           (SELECT count(*) FROM gobblin_service.flow_execution WHERE ended_at IS NULL) AS open_executions,
           (SELECT count(*) FROM gobblin_service.flow_execution WHERE status = 'FAILED') AS failed_executions,
           (SELECT count(*) FROM gobblin_service.job_attempt) AS retries,
           (SELECT count(*) FROM gobblin_service.flow_slot) AS slots,
           (SELECT count(*) FROM gobblin_service.job_execution WHERE ended_at IS NULL AND send_begun_at IS NULL)
               AS outbox,
           (SELECT count(*) FROM gobblin.job_ticket WHERE ended_at IS NULL) AS inbox,
           (SELECT count(*) FROM gobblin.job_ticket) AS tickets,
           (SELECT count(*) FROM gobblin.ticket_report) AS reports,
           (SELECT count(*) FROM gobblin.commit_sequence) AS sequences,
           (SELECT count(*) FROM gobblin.commit_sequence WHERE state <> 'DONE') AS open_sequences"""
_LATENESS: Final = """
    SELECT coalesce(max(extract(epoch FROM started_at - fire_at)), 0)::float8,
           coalesce(avg(extract(epoch FROM started_at - fire_at)), 0)::float8,
           count(*) FROM gobblin_service.flow_execution
     WHERE fire_at IS NOT NULL AND started_at > now() - interval '1 minute'"""
_SLOTS: Final = """
    SELECT f.flow_name, s.slot_at, s.until_at, s.count, s.state, s.reason, e.status
      FROM gobblin_service.flow_slot s JOIN gobblin_service.flow f USING (flow_id)
      LEFT JOIN gobblin_service.flow_execution e USING (execution_id)"""


class Sampler:
    """Appends samples to ``samples.jsonl`` of the soak's home. ``slots``: all that were seen, also forgotten ones."""

    def __init__(self, world: SoakWorld) -> None:
        self._world = world
        self._begun_s = time.monotonic()
        self.path = world.plan.home / "samples.jsonl"
        self.slots: dict[tuple[str, str], dict[str, Any]] = {}

    def take(self) -> Sample:
        sample = {
            "minute": (time.monotonic() - self._begun_s) / 60.0,
            "at": time.time(),
            "cpu_s": _count_cpu_s(self._roots()),
            "processes": list(self._list_processes()),
            **{name: _look_at(server) for name, server in self._servers().items()},
            **self._ask_service(),
            "folders": {name: _measure_folder(path) for name, path in self._folders().items()},
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(sample) + "\n")
        return sample

    def read_slots(self) -> None:
        with connect_source(self._world.log, "gobblin") as connection:
            for flow, at, until, count, state, reason, status in connection.execute(_SLOTS):
                self.slots[flow, at.isoformat()] = {
                    "until": until.isoformat(),
                    "count": count,
                    "state": state,
                    "reason": reason,
                    "status": status,
                }
        path = self._world.plan.home / "slots.json"
        path.write_text(json.dumps([[*key, slot] for key, slot in self.slots.items()]), encoding="utf-8")

    def _servers(self) -> dict[str, EmbeddedServer]:
        return dict(zip(SERVERS, (self._world.log, self._world.source), strict=True))

    def _roots(self) -> dict[str, int]:
        servers = {f"postgres {name}": _postmaster_of(server) for name, server in self._servers().items()}
        return {**{machine.name: machine.pid for machine in self._world.machines}, **servers, "soak": os.getpid()}

    def _list_processes(self) -> Iterator[dict[str, Any]]:
        stats = read_stats()
        for machine, root in self._roots().items():
            # The others are children of this process.
            members = [root] if machine == "soak" else list_tree(root, stats)
            measured = {pid: found for pid in members if (found := _measure_process(pid, stats)) is not None}
            if machine.startswith("postgres"):
                yield _add_up(machine, root, measured)
                continue
            for pid, found in measured.items():
                yield {"machine": machine, "pid": pid, **found}

    def _ask_service(self) -> dict[str, Any]:
        with connect_source(self._world.log, "gobblin") as connection:
            cursor = connection.execute(_COUNTS)
            names = [column.name for column in cursor.description or ()]
            counts = dict(zip(names, cursor.fetchone() or (), strict=True))
            latest, mean, fired = connection.execute(_LATENESS).fetchone() or (0.0, 0.0, 0)
        self.read_slots()
        return {"counts": counts, "late_s_max": latest, "late_s": mean, "fired": fired}

    def _folders(self) -> dict[str, Path]:
        plan = self._world.plan
        return {
            "lake": plan.lake,
            "mirror": plan.mirror,
            "home": plan.log_home,
            "said": plan.said,
            "scratch": plan.scratch,
        }


def list_tree(root: int, stats: Mapping[int, Sequence[str]]) -> list[int]:
    """A process and all below it."""
    found = [root]
    for parent in found:
        found += [pid for pid, fields in stats.items() if int(fields[_PARENT]) == parent]
    return found


def _measure_process(pid: int, stats: Mapping[int, Sequence[str]]) -> dict[str, Any] | None:
    """In bytes; None: it has ended meanwhile."""
    try:
        fields = stats[pid]
        memory = Counter[str]()
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
            name, size, *_ = line.split()
            memory[name.rstrip(":")] += int(size) * _KIB
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        return {
            "role": _name_role(words),
            "started": int(fields[_STARTED]) / _TICKS,
            "cpu_s": (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS,
            "rss": memory["Rss"],
            "pss": memory["Pss"],
            "uss": memory["Private_Clean"] + memory["Private_Dirty"],
            "files": len(list(Path(f"/proc/{pid}/fd").iterdir())),
            "threads": len(list(Path(f"/proc/{pid}/task").iterdir())),
        }
    except (OSError, KeyError, ValueError):
        return None


def _name_role(words: Sequence[str]) -> str:
    """The first words behind the interpreter, without paths and options."""
    plain = [Path(word).name if "/" in word else word for word in words[1:]]
    return " ".join(word for word in plain if word and not word.startswith(("-", "{")))[:80].strip() or words[0]


def _add_up(machine: str, root: int, measured: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    """A server's processes as one: its backends come and go."""
    names = ("uss", "pss", "files", "threads")
    total = {name: sum(each[name] for each in measured.values()) for name in names}
    return {
        "machine": machine,
        "pid": root,
        "role": "server",
        "rss": max((each["rss"] for each in measured.values()), default=0),
        "uss_max": max((each["uss"] for each in measured.values()), default=0),
        "count": len(measured),
        **total,
    }


def _look_at(server: EmbeddedServer) -> dict[str, Any]:
    with connect_source(server, "postgres") as connection:
        databases = {str(name): int(size) for name, size in connection.execute(_DATABASES)}
        found: dict[str, Any] = {
            "connections": {str(name): int(count) for name, count in connection.execute(_CONNECTIONS)},
            "databases": databases,
            "log_files": [int(each) for each in connection.execute(_LOG_FILES).fetchone() or ()],
            "retained": {str(name): int(size) for name, size in connection.execute(_SLOTS_AT_SOURCE)},
        }
    tables = {}
    for database in databases:
        with connect_source(server, database) as connection:
            for name, *numbers in connection.execute(_TABLES):
                tables[f"{database}.{name}"] = [int(number) for number in numbers]
    return {**found, "tables": tables}


def _count_cpu_s(roots: Mapping[str, int]) -> dict[str, float]:
    """Of each machine: its processes that live, and those that were waited for."""
    stats = read_stats()
    found = {}
    for machine, root in roots.items():
        members = [root] if machine == "soak" else list_tree(root, stats)
        last = _SYSTEM if machine == "soak" else _SYSTEM + 2
        ticks = [int(tick) for pid in members if pid in stats for tick in stats[pid][_USER : last + 1]]
        found[machine] = sum(ticks) / _TICKS
    return found


def _postmaster_of(server: EmbeddedServer) -> int:
    return int(Path(server.data_directory, "postmaster.pid").read_text(encoding="ascii").split()[0])


def _measure_folder(root: Path) -> list[int]:
    """How many files are below it, and their bytes, without the cluster of a server."""
    count = size = 0
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != "postgres"]
        for name in names:
            with suppress(OSError):
                size += Path(folder, name).lstat().st_size
                count += 1
    return [count, size]
