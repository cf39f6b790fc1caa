"""Restarts that a run may ask of topics once, on the command line and in run configuration."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gobblin_assets.cli import main
from gobblin_assets.dagster.factory import build_gobblin_layout
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.run_config import GobblinRunConfig, decide_confirmation, decide_restart
from gobblin_assets.errors import RejectedError
from gobblin_assets.run.job_kind import Restart, StartAt
from gobblin_assets.spec.job_files import read_any_job_file, read_job_file

TOPICS = """
job: events
source: {type: kafka, connection: shop}
destination: ./lake
datasets: [{topic: views}, {topic: clicks}]
"""
TABLES = """
job: shop
source: {connection: shop}
destination: ./lake
datasets: [{table: public.customers}]
"""


def write_job(directory: Path, job: str) -> Path:
    path = directory / "job.yaml"
    path.write_text(job, encoding="utf-8")
    return path


@pytest.fixture
def topics(tmp_path: Path) -> JobLayout:
    return build_gobblin_layout(read_job_file(write_job(tmp_path, TOPICS)))


def decide(layout: JobLayout, *, topic_count: int = 1, **asked: Any) -> Restart | StartAt | None:
    return decide_restart(GobblinRunConfig(**asked), layout, topic_count=topic_count)


def test_run_configuration_asks_for_nothing_a_restart_or_offsets(topics: JobLayout) -> None:
    assert decide(topics) is None
    assert decide(topics, restart="start_over", topic_count=2) is Restart.START_OVER
    assert decide(topics, start_at={"0": 1500, "12": 0}) == StartAt({0: 1500, 12: 0})


@pytest.mark.parametrize(
    ("asked", "topic_count", "said"),
    [
        ({"restart": "begin"}, 1, r"restart: expected one of move_to_latest, start_over, found 'begin'"),
        ({"start_at": {"0": 1}}, 2, r"start_at: offsets are those of one topic"),
        ({"start_at": {"0": 1}, "restart": "start_over"}, 1, r"start_at: offsets are those of one topic, and nothing"),
        ({"start_at": {}}, 1, r"start_at: expected offsets by numbers of partitions, found \{\}"),
        ({"start_at": {"0": -1}}, 1, r"start_at: expected offsets by numbers of partitions"),
        ({"start_at": {"first": 1}}, 1, r"start_at: expected offsets by numbers of partitions"),
    ],
)
def test_what_run_configuration_can_t_ask_for_is_refused(
    topics: JobLayout, asked: dict[str, Any], topic_count: int, said: str
) -> None:
    with pytest.raises(RejectedError, match=said):
        decide(topics, topic_count=topic_count, **asked)


@pytest.mark.parametrize("asked", [{"restart": "start_over"}, {"start_at": {"0": 1}}])
def test_run_configuration_asks_nothing_of_topics_where_tables_are_read(tmp_path: Path, asked: dict[str, Any]) -> None:
    with pytest.raises(RejectedError, match=r"is for topics, and shop reads tables"):
        decide(build_gobblin_layout(read_job_file(write_job(tmp_path, TABLES))), **asked)


@pytest.mark.parametrize(
    ("job", "options", "code", "said"),
    [
        (TOPICS, ["--start-at", "0=1"], 2, "--start-at: offsets are those of one topic, and 2 are to be read"),
        (TOPICS, ["--dataset", "views", "--start-at", "0"], 2, "expected PARTITION=OFFSET, such as 0=1500; found '0'"),
        (TOPICS, ["--start-at", "0=-1"], 2, "expected PARTITION=OFFSET"),
        (TOPICS, ["--start-over", "--start-at", "0=1"], 2, "--start-over: and --start-at exclude each other"),
        (TABLES, ["--start-at", "0=1"], 2, "--start-at: is for topics, and shop reads tables"),
    ],
)
def test_what_the_command_line_can_t_ask_for_is_refused_before_anything_is_opened(
    tmp_path: Path, job: str, options: list[str], code: int, said: str
) -> None:
    result = CliRunner().invoke(main, ["run", str(write_job(tmp_path, job)), *options])

    assert said in result.output
    assert result.exit_code == code
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


def test_a_topic_is_asked_for_no_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOBBLIN_KAFKA_SHOP_BOOTSTRAP_SERVERS", "nowhere.invalid:1")
    result = CliRunner().invoke(main, ["discover", str(write_job(tmp_path, TOPICS)), "--columns"])

    assert "--columns: is for tables" in result.output
    assert result.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


def test_only_copies_take_a_confirmation_of_removals(topics: JobLayout, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    copy = f"{{job: mirror, kind: distcp, source: {tmp_path}/in, destination: {tmp_path}/out, datasets: [{{urn: a}}]}}"
    layout = build_gobblin_layout(read_any_job_file(write_job(tmp_path, copy)))
    tagged = {"gobblin/confirm_deletes": "true"}

    assert decide_confirmation(GobblinRunConfig(), {}, layout) is False
    assert decide_confirmation(GobblinRunConfig(), tagged, layout) is True
    assert decide_confirmation(GobblinRunConfig(confirm_deletes=True), {}, layout) is True
    assert decide_confirmation(GobblinRunConfig(confirm_deletes=False), tagged, layout) is False
    with pytest.raises(RejectedError, match="is for copies"):
        decide_confirmation(GobblinRunConfig(), tagged, topics)
    with pytest.raises(RejectedError, match="expected true or false in the tag"):
        decide_confirmation(GobblinRunConfig(), {"gobblin/confirm_deletes": "yes"}, layout)
