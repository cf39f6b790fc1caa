"""What a soak says of its samples and its slots: what grows is named, and what is missing."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.soak_slots import account_slots
from benchmarks.soak_verdict import judge_growth

MB = 1_000_000
MINUTES = 40
COUNTS = {"executions": 0, "failed_executions": 0, "retries": 0, "open_executions": 3, "outbox": 0, "inbox": 2}
COUNTS |= {"slots": 60, "reports": 90, "open_sequences": 1}


def sample(minute: int) -> dict[str, Any]:
    """One of a soak in which nothing grows but what does so by its rules."""
    process = {"machine": "node-1", "role": "service serve", "pid": 7, "uss": 110 * MB, "files": 20, "threads": 22}
    # Table: bytes, live rows, dead rows.
    tables = {
        "gobblin.gobblin.ticket_report": [2 * MB, 900, 100],
        "gobblin.gobblin_service.flow_execution": [MB + 2_000 * minute, 100 + minute, 0],
    }
    server = {
        "connections": {"gobblin gobblin-assets": 20},
        "log_files": [2, 32 * MB],
        "retained": {"slot": 100},
        "databases": {"gobblin": 12 * MB},
        "tables": tables,
    }
    return {
        "minute": float(minute),
        "cpu_s": {"node-1": minute * 9.0},
        "processes": [process],
        "log": server,
        "source": {**server, "connections": {"shop": 2}, "tables": {}},
        "counts": {**COUNTS, "executions": minute},
        "folders": {"lake": [minute, 0], "mirror": [1, 0], "home": [4, 0], "said": [3, 0], "scratch": [0, 0]},
        "late_s_max": 0.2,
        "fired": 1,
    }


def judged(home: Path, samples: list[dict[str, Any]]) -> bool:
    (home / "samples.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in samples), encoding="utf-8")
    return judge_growth(home)


def test_a_steady_soak_has_not_grown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(tmp_path, [sample(minute) for minute in range(MINUTES)])

    said = capsys.readouterr().out
    assert "0 have grown" in said
    assert "flow_execution: 2," in said, "what is kept is said for each execution"


def grow_memory(each: dict[str, Any]) -> None:
    each["processes"][0]["uss"] += each["minute"] * MB


def grow_files(each: dict[str, Any]) -> None:
    each["processes"][0]["files"] += each["minute"]


def grow_connections(each: dict[str, Any]) -> None:
    each["log"]["connections"]["gobblin gobblin-assets"] += each["minute"]


def grow_table(each: dict[str, Any]) -> None:
    each["log"]["tables"]["gobblin.gobblin.ticket_report"][0] += each["minute"] * MB // 10


def grow_new_table(each: dict[str, Any]) -> None:
    if each["minute"] > MINUTES / 2:
        each["log"]["tables"]["gobblin.gobblin.lease"] = [MB, 10, 0]


def grow_dead_rows(each: dict[str, Any]) -> None:
    each["log"]["tables"]["gobblin.gobblin.ticket_report"][2] += 100 * each["minute"]


def grow_outbox(each: dict[str, Any]) -> None:
    each["counts"]["outbox"] += 2 * each["minute"]


def grow_slot(each: dict[str, Any]) -> None:
    each["source"]["retained"]["slot"] += each["minute"] * MB


def grow_said(each: dict[str, Any]) -> None:
    each["folders"]["scratch"][0] += 2 * each["minute"]


@pytest.mark.parametrize(
    ("grow", "named"),
    [
        (grow_memory, "node-1: service serve (7), MB of its own: 124.5 to 144.5"),
        (grow_files, "node-1: service serve (7), open files"),
        (grow_connections, "Postgres of the log, connections"),
        (grow_table, "table gobblin.gobblin.ticket_report, MB"),
        (grow_new_table, "table gobblin.gobblin.lease, MB"),
        (grow_dead_rows, "table gobblin.gobblin.ticket_report, dead rows"),
        (grow_outbox, "outbox, count"),
        (grow_slot, "slot slot, MB kept for slots"),
        (grow_said, "folder scratch, files"),
    ],
)
def test_what_grows_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], grow: Any, named: str) -> None:
    samples = [sample(minute) for minute in range(MINUTES)]
    for each in samples:
        grow(each)

    assert not judged(tmp_path, samples)

    said = " ".join(capsys.readouterr().out.split())
    assert f"has grown: {named}" in said
    assert "1 have grown" in said


def test_what_is_kept_by_its_rules_may_not_be_large(tmp_path: Path) -> None:
    samples = [sample(minute) for minute in range(MINUTES)]
    for each in samples:
        each["log"]["tables"]["gobblin.gobblin_service.flow_execution"][0] += 20_000 * int(each["minute"])
    assert not judged(tmp_path, samples)


def test_few_samples_are_no_proof(tmp_path: Path) -> None:
    assert not judged(tmp_path, [sample(minute) for minute in range(8)])


BEGUN = dt.datetime(2026, 1, 1, 10, 0, 30, tzinfo=dt.UTC)
RUN = {"count": 1, "state": "RUN", "reason": ""}


def account(slots: dict[tuple[str, str], dict[str, Any]]) -> tuple[int, list[str]]:
    schedules = {"orders": "1-59/3 * * * *", "changes": "@continuous"}
    return account_slots(schedules, slots, BEGUN, BEGUN + dt.timedelta(minutes=9))


def at(minute: int) -> str:
    return dt.datetime(2026, 1, 1, 10, minute, tzinfo=dt.UTC).isoformat()


def test_each_slot_is_accounted_once() -> None:
    slots = {("orders", at(minute)): {**RUN, "until": at(minute)} for minute in (1, 4, 7)}
    assert account(slots) == (3, [])


def test_a_range_of_slots_accounts_all_in_it() -> None:
    skipped = {"count": 2, "state": "SKIPPED", "reason": "an execution of the flow was open", "until": at(4)}
    assert account({("orders", at(1)): skipped, ("orders", at(7)): {**RUN, "until": at(7)}}) == (3, [])


def test_a_missing_slot_a_doubled_one_and_one_without_a_reason_are_named() -> None:
    slots = {
        ("orders", at(1)): {**RUN, "until": at(4)},
        ("orders", at(4)): {**RUN, "until": at(4)},
    }
    assert account(slots) == (3, ["orders at 10:04: 2 slots", "orders at 10:07: 0 slots"])
    silent = {("orders", at(minute)): {**RUN, "until": at(minute), "state": "SKIPPED"} for minute in (1, 4, 7)}
    assert account(silent)[1][0] == "orders at 10:01: SKIPPED without a reason"
