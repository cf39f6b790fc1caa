"""A short torture: some things must have happened often enough, and nothing is left behind at the end."""

import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from gobblin_assets.destinations.lane_marks import PlaceGoneError
from gobblin_assets.sources.kafka.cluster import PartitionOffsets, TopicPartition
from gobblin_assets.sources.kafka.planning import describe_out_of_range
from tests.crash.points import OF_A_CAPTURE, OF_A_RESCALE, OF_A_REUSE, OF_A_SINK, OF_A_SLOT, OF_CLEANUP, OF_EXECUTION
from tests.crash.test_kills import OF_ABANDONMENT
from tests.support.postgres import make_reachable_directory
from tests.torture.copy_source import SourceTree
from tests.torture.home import PREFIX, hold_home, stop_servers
from tests.torture.person import Sayings, hear_of_tables
from tests.torture.proving_files import read_version
from tests.torture.schedule import (
    LOADS,
    ON_THE_BROKER,
    ON_THE_SERVER,
    ON_THE_SOURCE,
    PROXY_FAULTS,
    STOPS_LOADS,
    STOPS_TABLES,
    STOPS_TOPICS,
    Action,
    Injection,
    plan_cdc_runner,
    plan_copy_runner,
    plan_disturbances,
    plan_runner,
    plan_sink_runner,
    plan_spark_runner,
)
from tests.torture.tally import Tally
from tests.torture.troubles import hear_of_topics

ROOT = Path(__file__).parents[2]
END_S_MAX = 60
ROUNDS_MAX = 8
_OF_LOADS = {
    "runs that were killed": 2,
    "sequences published": 20,
    "topics taken away": 1,
    "places taken away": 1,
    "acts that were said": 2,
    "troubles that a person ended": 2,
    "samples with all rows of a dataset": 10,
}
FLOORS = {
    "small": {
        "runs that were killed": 6,
        "zombies woken": 1,
        "sequences published": 4,
        "server hits": 1,
        "proxy faults": 1,
        "samples with all rows of a dataset": 10,
    },
    "table": {
        "runs that were killed": 2,
        "zombies woken": 1,
        "sequences published": 4,
        "proxy faults": 1,
        "samples with all rows of a dataset": 10,
    },
    "copy": {
        "runs that were killed": 2,
        "sequences published": 4,
        "proxy faults": 1,
        "versions in slots after the last change": 1,
        Injection.FILES_REWRITTEN: 1,
        "samples with all files of a dataset": 10,
    },
    "topic": {
        "runs that were killed": 6,
        "zombies woken": 1,
        "sequences published": 4,
        "server hits": 1,
        "broker hits": 1,
        "runs: stream": 1,
        "reads that several datasets shared": 1,
        "samples with all rows of a dataset": 10,
    },
    "sink": {
        "runs that were killed": 4,
        "zombies woken": 1,
        "sequences published": 20,
        "server hits": 1,
        "broker hits": 1,
        "proxy faults": 1,
        "transactions aborted": 2,
        Injection.LANES_CHANGED: 1,
        Injection.WORKERS_DRAINED: 1,
        "samples with all rows of a dataset": 10,
    },
    **dict.fromkeys(LOADS, _OF_LOADS),
    "cdc": {
        "runs that were killed": 4,
        "sequences published": 6,
        "server hits": 1,
        "proxy faults": 1,
        "source hits": 1,
        "large transactions": 1,
        "large transactions rolled back": 1,
        "truncates": 1,
        "tables taken away": 2,
        "acts that were said": 1,
        "new copies that a person began": 1,
        "samples with all rows of a dataset": 10,
    },
}
"""The least counts of events; one round mostly reaches them."""


@pytest.fixture
def torture_home() -> Iterator[Path]:
    """Whatever happens in the torture, its server is stopped and its folder is removed afterwards."""
    made = make_reachable_directory(PREFIX)
    yield made
    if made.exists():
        stop_servers(made)
        shutil.rmtree(made)


@contextmanager
def torture(home: Path, *arguments: str, kinds: Sequence[str] = ("small",)) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "tests.torture", "--kinds", *kinds, "--home", str(home), *arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def counts_of(output: str, kind: str) -> Counter[str]:
    _before, _title, table = output.partition(f"\n{kind} runners\n")
    lines = re.findall(r"^  (\S.*?)  +(\d+)$", table.partition("\n\n")[0], flags=re.MULTILINE)
    counts = Counter({name: int(count) for name, count in lines})
    counts["server hits"] = sum(counts[injection] for injection in ON_THE_SERVER)
    counts["proxy faults"] = sum(counts[injection] for injection in PROXY_FAULTS)
    counts["broker hits"] = sum(counts[injection] for injection in ON_THE_BROKER)
    counts["topics taken away"] = sum(counts[injection] for injection in STOPS_TOPICS)
    counts["places taken away"] = sum(counts[injection] for injection in STOPS_LOADS)
    counts["tables taken away"] = sum(counts[injection] for injection in STOPS_TABLES)
    counts["source hits"] = sum(counts[injection] for injection in ON_THE_SOURCE)
    return counts


def torture_until_enough_happened(minutes: float, *kinds: str) -> None:
    """A machine that is slow at the moment needs several rounds."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    for round_number in range(ROUNDS_MAX):
        home = make_reachable_directory(PREFIX)
        seed = f"{' '.join(kinds)} {round_number}"
        with torture(home, "--minutes", f"{minutes}", "--seed", seed, kinds=kinds) as process:
            output = process.communicate()[0]
        assert process.returncode == 0, output
        assert "exactly once" in output
        assert not home.exists()
        for kind in kinds:
            counts[kind].update(counts_of(output, kind))
        if all(counts[kind][name] >= floor for kind in kinds for name, floor in FLOORS[kind].items()):
            return
    pytest.fail(f"in {ROUNDS_MAX} rounds only {counts}, expected {FLOORS}")


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_half_a_minute_of_kills_zombies_and_lost_servers_publishes_exactly_once() -> None:
    torture_until_enough_happened(0.5, "small", "table", "copy")


@pytest.mark.thorough
@pytest.mark.timeout(2_400)
def test_minutes_of_lost_brokers_killed_streams_and_zombies_publish_topics_exactly_once() -> None:
    torture_until_enough_happened(1.5, "topic")


@pytest.mark.thorough
@pytest.mark.timeout(2_400)
def test_minutes_of_killed_and_paused_workers_and_changing_lanes_publish_topics_exactly_once() -> None:
    torture_until_enough_happened(1.0, "sink")


@pytest.mark.thorough
@pytest.mark.timeout(2_400)
def test_minutes_of_killed_workers_sources_and_walsenders_publish_change_logs_exactly_once() -> None:
    torture_until_enough_happened(1.0, "cdc")


@pytest.mark.thorough
@pytest.mark.timeout(2_400)
def test_minutes_of_topics_and_destinations_that_a_stranger_takes_away_load_exactly_once() -> None:
    torture_until_enough_happened(1.5, *LOADS)


@pytest.mark.thorough
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(("mutant", "kind"), [("absence", "sink-postgres")])
def test_workers_that_go_on_without_a_word_are_noticed(mutant: str, kind: str) -> None:
    for round_number in range(ROUNDS_MAX):
        home = make_reachable_directory(PREFIX)
        arguments = ("--minutes", "0.7", "--seed", f"{mutant} {round_number}", "--mutant", mutant)
        with torture(home, *arguments, kinds=[kind]) as process:
            output = process.communicate()[0]
        shutil.rmtree(home, ignore_errors=True)
        if process.returncode and "nobody said what has happened to" in output:
            return
    pytest.fail(f"{ROUNDS_MAX} rounds noticed nothing, the last one said: {output}")


@pytest.mark.thorough
def test_an_interrupted_torture_leaves_nothing_behind(torture_home: Path) -> None:
    with torture(torture_home, "--minutes", "5") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if re.search(r"[1-9]\d* runs", line):
                break
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=END_S_MAX)[0]

    assert process.returncode == 130, output
    assert not torture_home.exists()
    assert [folder for folder in Path("/proc").glob("[0-9]*") if _mentions(folder, str(torture_home))] == []


@pytest.mark.thorough
def test_what_a_killed_torture_left_is_swept_by_the_next(torture_home: Path) -> None:
    with torture(torture_home, "--minutes", "5") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if re.search(r"[1-9]\d* runs", line):
                break
        process.kill()
        process.communicate(timeout=END_S_MAX)
    assert (torture_home / "small" / "postgres").exists()

    with hold_home(None) as other:
        assert not torture_home.exists()
    shutil.rmtree(other)

    assert [folder for folder in Path("/proc").glob("[0-9]*") if _mentions(folder, str(torture_home))] == []


def test_a_seed_repeats_its_schedule_and_another_one_does_not() -> None:
    def plan(seed: str) -> tuple[object, ...]:
        runners = [plan_runner(seed, number, lakes=2, datasets=3) for number in range(200)]
        return (*runners, *plan_disturbances(seed, 600, ON_THE_SERVER, every_s=7))

    assert plan("a") == plan("a")
    assert plan("a") != plan("b")


def test_a_stranger_acts_by_the_seed_in_every_way_and_nobody_where_there_is_none() -> None:
    acts = (*STOPS_TABLES, Injection.TABLE_LOCKED)

    planned = plan_disturbances("a", 120, acts, every_s=7)

    assert planned == plan_disturbances("a", 120, acts, every_s=7)
    assert planned != plan_disturbances("b", 120, acts, every_s=7)
    assert {each.injection for each in planned} == set(acts)
    assert plan_disturbances("a", 120, (), every_s=7) == ()


def test_a_file_that_is_rewritten_in_place_has_another_version_of_the_same_time_and_one_of_its_own_in_the_end(
    tmp_path: Path,
) -> None:
    tree = SourceTree(tmp_path / "tree", "a", tmp_path, ("",), random.Random("any"))

    assert tree.rewrite(0) == 1

    ((path, versions),) = [(path, each) for path, each in tree.history.items() if len(each) == 4]
    first, new, in_place, last = versions
    assert in_place == new
    assert {(each.size, each.mode) for each in versions} == {(first.size, first.mode)}
    assert first.mtime_ns < new.mtime_ns < last.mtime_ns
    content = (tmp_path / "tree" / path.removeprefix("a/")).read_bytes()
    assert read_version(path, content) == 4


@pytest.mark.parametrize("is_said", [True, False], ids=["said", "silent"])
def test_what_nobody_says_of_a_stranger_s_act_is_a_difference(tmp_path: Path, is_said: bool) -> None:
    logs, tally = tmp_path / "logs", Tally()
    logs.mkdir()
    sayings = Sayings(logs, hear_of_tables(["notes", "orders"]), tally)
    sayings.expect(Injection.TABLE_SWAPPED, ["orders"])
    tables = ["notes", "orders"] if is_said else ["notes"]
    lines = (
        f"public.{table}: backs off: … gobblin-assets sink recopy JOB --dataset public.{table}.\n" for table in tables
    )
    (logs / "1.log").write_text("".join(lines), encoding="utf-8")

    sayings.judge()

    assert tally.of("acts that were said") == is_said
    assert len(tally.violations) == (not is_said)


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        (PlaceGoneError("shop.orders is gone", "orders"), ["gone orders"]),
        (describe_out_of_range(TopicPartition("orders", 3), 100, PartitionOffsets(0, 50)), ["lost orders"]),
        ("orders:3: the offset 100 is no place of the log that the topic has now: another record", ["lost orders"]),
        ("the topic orders was deleted and made again: its id was 1. Run it with --start-over", ["remade orders"]),
        ("shop.orders took 3 of 12 rows: a trigger or a rule of it leaves rows out", ["trigger orders"]),
        ("nothing was read for 30 s", []),
    ],
)
def test_what_workers_say_of_topics_and_their_destinations_is_heard(text: object, heard: list[str]) -> None:
    assert hear_of_topics(f"orders: backs off for 5 s: {text}") == heard


def test_a_schedule_has_every_kind_of_fate() -> None:
    plans = [plan_runner("any", number, lakes=2, datasets=3) for number in range(500)]

    assert {plan.fate for plan in plans} >= {
        Injection.KILL_AT_POINT,
        Injection.KILL_AT_RANDOM,
        Injection.STOP_AT_POINT,
        Injection.STOP_AT_RANDOM,
        Injection.ACKNOWLEDGEMENT_LOST,
        Injection.ERROR_AFTER_EFFECT,
    }
    assert {plan.route for plan in plans} == {None, *PROXY_FAULTS}
    assert any(plan.wake_after_s is None for plan in plans if plan.fate == Injection.STOP_AT_POINT)


def test_copies_are_killed_and_stopped_where_files_are_taken_captured_and_moved() -> None:
    plans = [plan_copy_runner("any", number, lakes=2, datasets=3) for number in range(2_000)]
    reached = {plan.failpoint.partition("@")[0] for plan in plans}

    for point in (*OF_A_REUSE, *OF_A_CAPTURE, *OF_EXECUTION, *OF_CLEANUP, *OF_ABANDONMENT):
        assert reached >= {f"{point}=kill", f"{point}=stop"}
    assert {plan.action for plan in plans} == set(Action) - {Action.STREAM}
    assert {plan.news_only for plan in plans} == {True, False}


def test_every_stream_is_told_to_end_and_some_are_killed_or_paused_before() -> None:
    plans = [plan_spark_runner("topic", "any", number, datasets=4) for number in range(500)]
    streams = [plan for plan in plans if plan.action is Action.STREAM]

    assert {plan.action for plan in plans} == set(Action) - {Action.RESUME}
    assert {plan.fate for plan in streams} >= {
        Injection.KILL_AT_POINT,
        Injection.KILL_AT_RANDOM,
        Injection.STOP_AT_POINT,
        Injection.STOP_AT_RANDOM,
    }
    assert [plan for plan in streams if plan.end_after_s is None] == []
    assert [plan for plan in plans if plan.action is not Action.STREAM and plan.end_after_s is not None] == []


def test_workers_of_a_sink_are_killed_and_stopped_at_every_point_of_their_work() -> None:
    plans = [plan_sink_runner("any", number, datasets=2) for number in range(3_000)]
    workers = [plan for plan in plans if plan.action is Action.STREAM]
    reached = {plan.failpoint.partition("@")[0] for plan in workers}

    for point in (*OF_A_SINK, *OF_A_RESCALE):
        assert reached >= {f"{point}=kill", f"{point}=stop"}
    assert {plan.action for plan in plans} == {Action.STREAM, Action.RECOVER, Action.ABANDON, Action.RESUME}
    assert [plan for plan in workers if plan.end_after_s is None or plan.datasets != (0, 1)] == []


def test_workers_of_a_change_log_are_killed_and_stopped_at_the_points_of_their_slot_as_well() -> None:
    plans = [plan_cdc_runner("any", number, datasets=2) for number in range(3_000)]
    reached = {plan.failpoint.partition("@")[0] for plan in plans if plan.action is Action.STREAM}

    for point in (*OF_A_SINK, *OF_A_SLOT):
        assert reached >= {f"{point}=kill", f"{point}=stop"}


def _mentions(process: Path, text: str) -> bool:
    try:
        return text.encode() in (process / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
