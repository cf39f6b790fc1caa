"""The verdict on a cluster under torture: multisets of rows, slots, executions, publications and logs."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from sqlalchemy import Engine, text

from demo.service.places import list_files
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.postgres import open_stores
from tests.support.changed_tables import ChangedTables
from tests.support.dense_schedules import find_account_faults
from tests.support.iceberg_rows import find_table
from tests.support.kafka import read_all
from tests.torture.cluster_places import NAMESPACE, OFFICE, TOPIC, ClusterPlaces

Rows = Counter[tuple[Any, ...]]

STEP: Final = dt.timedelta(minutes=1)
COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "orders": ("id", "amount"),
    "customers": ("id", "name"),
    "items": ("id", "amount"),
    "loads": ("id", "amount"),
}

_ENDED_TWICE: Final = """
    SELECT ticket_id::text FROM gobblin.ticket_claim WHERE ended_as = 'COMPLETE' GROUP BY ticket_id HAVING count(*) > 1
"""
_TOLD_TWICE: Final = """
    SELECT sequence_id::text FROM gobblin.ticket_report WHERE kind = 'published'
     GROUP BY sequence_id HAVING count(*) > 1
"""
_TOLD_FALSELY: Final = """
    SELECT r.sequence_id::text FROM gobblin.ticket_report r LEFT JOIN gobblin.commit_sequence s USING (sequence_id)
     WHERE r.kind = 'published' AND s.state IS DISTINCT FROM 'DONE'
"""
_OPEN_IN_A_LOG: Final = """
    SELECT 'ticket ' || ticket_id FROM gobblin.job_ticket WHERE verb <> 'CANCEL' AND ended_at IS NULL
    UNION ALL
    SELECT 'sequence ' || sequence_id || ' ' || state FROM gobblin.commit_sequence
     WHERE state NOT IN ('DONE', 'ABORTED')
"""
_OPEN_IN_THE_SERVICE: Final = """
    SELECT 'execution ' || execution_id || ' ' || status FROM gobblin_service.flow_execution WHERE ended_at IS NULL
    UNION ALL
    SELECT 'job ' || job_name || ' ' || status FROM gobblin_service.job_execution WHERE ended_at IS NULL
    UNION ALL
    SELECT 'slot ' || slot_at FROM gobblin_service.flow_slot WHERE state = 'WAITING'
"""


def read_source(places: ClusterPlaces, table: str) -> Rows:
    with places.source.connect() as connection:
        return Counter(connection.execute(f"SELECT {', '.join(COLUMNS[table])} FROM {table}".encode()).fetchall())


def list_published(engine: Engine, job: str, table: str) -> list[Path]:
    """The files that the ledger has."""
    found = open_stores(engine).published.find(JobName(job), DatasetUrn(f"public.{table}"), role=Role.DATA)
    return [Path(each.path) for segment in (found.segments if found else ()) for each in segment.files()]


def read_published(engine: Engine, job: str, table: str) -> Rows:
    return _read_files(list_published(engine, job, table), table)


def read_shown(folder: Path, table: str) -> Rows:
    return _read_files(list_shown(folder, table), table)


def _read_files(paths: Sequence[Path], table: str) -> Rows:
    rows: Rows = Counter()
    for path in paths:
        found = pq.read_table(path, columns=list(COLUMNS[table]), partitioning=None)
        rows.update(tuple(row[name] for name in COLUMNS[table]) for row in found.to_pylist())
    return rows


def list_shown(folder: Path, table: str) -> list[Path]:
    """The files that any reader finds in the directories of a table."""
    return [folder / path for path in sorted(list_files(folder)) if f"public.{table}" in path.parts]


def read_shelf(places: ClusterPlaces, table: str) -> Rows:
    with places.shelf.connect() as connection:
        (row,) = connection.execute("SELECT to_regclass(%s)", [f"public.{table}"]).fetchall()
        if row[0] is None:
            return Counter()
        return Counter(connection.execute(f"SELECT {', '.join(COLUMNS[table])} FROM {table}".encode()).fetchall())


def read_topic(places: ClusterPlaces) -> Rows:
    values = [json.loads(each.value or b"") for each in read_all(places.broker.bootstrap, TOPIC)]
    return Counter((each["id"], each["amount"]) for each in values)


def read_iceberg(places: ClusterPlaces) -> Rows:
    table = find_table(places.variables(OFFICE), NAMESPACE, TOPIC)
    if table is None:
        return Counter()
    return Counter((row["id"], row["amount"]) for row in table.scan().to_arrow().to_pylist())


def follow_accounts(places: ClusterPlaces, engine: Engine, job: str) -> ChangedTables:
    """The reader of the published changes."""
    return ChangedTables(places.folder, places.source, engine, ["accounts"], {"job": job})


def find_log_faults(engines: Mapping[str, Engine], service: Engine) -> Iterator[str]:
    """``engines``: of the logs, by name. What is open, what was done twice, and what is in two logs."""
    jobs: dict[str, set[str]] = {}
    identities: dict[str, str] = {}
    for name, engine in engines.items():
        yield from (f"{name}: open is {each}" for each in _ask(engine, _OPEN_IN_A_LOG))
        yield from (f"{name}: the ticket {each} is complete twice" for each in _ask(engine, _ENDED_TWICE))
        yield from (f"{name}: the sequence {each} is told twice" for each in _ask(engine, _TOLD_TWICE))
        yield from (f"{name}: the sequence {each} is told, and not done" for each in _ask(engine, _TOLD_FALSELY))
        jobs[name] = set(_ask(engine, "SELECT DISTINCT job FROM gobblin.dataset WHERE version > 0"))
        identities.update(dict.fromkeys(_ask(engine, "SELECT log_id::text FROM gobblin.log_identity"), name))
    yield from (f"open is {each}" for each in _ask(service, _OPEN_IN_THE_SERVICE))
    with service.connect() as connection:
        bound = connection.execute(text("SELECT job_name, log_id::text FROM gobblin_service.flow_job")).all()
    for job, log_id in bound:
        holders = {name for name, held in jobs.items() if job in held}
        if holders != {identities[log_id]}:
            yield f"{job} is bound to {identities[log_id]}, and published in {sorted(holders)}"


def find_slot_faults(service: Engine) -> Iterator[str]:
    """Each minute of each flow with a schedule, from its first slot to the next one, is accounted once."""
    with service.connect() as connection:
        flows = connection.execute(
            text("SELECT flow_id, flow_name, next_fire_at FROM gobblin_service.flow WHERE next_fire_at IS NOT NULL")
        ).all()
        slots = connection.execute(
            text("SELECT *, count AS slot_count FROM gobblin_service.flow_slot ORDER BY flow_id, slot_at")
        ).all()
        made = connection.execute(
            text("SELECT flow_id, fire_at, execution_id FROM gobblin_service.flow_execution WHERE fire_at IS NOT NULL")
        ).all()
    for flow in flows:
        own = [each for each in slots if each.flow_id == flow.flow_id]
        yield from find_account_faults(flow, own, own[0].slot_at if own else None, STEP)
    ran = {(each.flow_id, each.slot_at, each.execution_id) for each in slots if each.state == "RUN"}
    for odd in ran ^ {(each.flow_id, each.fire_at, each.execution_id) for each in made}:
        yield f"a slot without its execution, or an execution without its slot: {odd}"


def _ask(engine: Engine, query: str) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(text(query)).scalars())
