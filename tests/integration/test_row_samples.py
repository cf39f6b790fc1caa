"""Rows that fail a policy are counted, and three of them are shown, with masked values."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import text

from gobblin_assets.cli.output import to_plain
from gobblin_assets.cli.reports import print_report
from gobblin_assets.dagster.metadata import build_evaluation
from gobblin_assets.jobs.ingest import extractor
from gobblin_assets.run.run_values import RunReport
from tests.support.ingestion import Ingestion
from tests.support.postgres import Database
from tests.support.shop import connection_of

pytestmark = pytest.mark.turns(of=8)

ACCOUNTS: dict[str, Any] = {
    "urn": "public.accounts",
    "primary_key": ["id"],
    "converters": [{"rename": {"iban": "account"}}],
}
SECRET = "DE02-secret"


@pytest.fixture
def bank(fresh_database: Database) -> Database:
    with fresh_database.connect() as connection:
        connection.execute("CREATE TABLE accounts (id bigint PRIMARY KEY, iban text, tags text[], raw bytea)")
        connection.execute(
            "INSERT INTO accounts SELECT n, CASE WHEN n %% 10 = 0 THEN %s || n WHEN n = 5 THEN NULL ELSE 'DE' END,"
            " ARRAY['a', 'b'], '\\x00ff' FROM generate_series(1, 40) n",
            (SECRET,),
        )
    return fresh_database


@pytest.fixture
def ingestion(spark: SparkSession, database_url: str, bank: Database, tmp_path: Path) -> Iterator[Ingestion]:
    made = Ingestion(spark, database_url, connection_of(bank), str(tmp_path / "lake"), [])
    yield made
    made.close()


def check(ingestion: Ingestion, rule: str, on_failure: str, **quality: object) -> RunReport:
    rules = [{"name": "short", "check": rule, "on_failure": on_failure}]
    ingestion.datasets = [{**ACCOUNTS, "quality": {"rows": rules, **quality}}]
    return ingestion.run()


def figures_of(report: RunReport, name: str = "short") -> dict[str, Any]:
    (found,) = [each for each in report.datasets[0].checks if each.name == name]
    assert not found.passed
    return dict(found.figures)


def find_secrets(ingestion: Ingestion, report: RunReport, output: str) -> list[str]:
    """The places outside of the data that show a value of a row."""
    with ingestion.engine.connect() as connection:
        errors = connection.execute(text("SELECT error FROM gobblin.attempt")).scalars().all()
        details = connection.execute(text("SELECT details::text FROM gobblin.commit_sequence")).scalars().all()
    events = [
        build_evaluation(dg.AssetKey("k"), each).metadata for dataset in report.datasets for each in dataset.checks
    ]
    places = {
        "report": json.dumps(to_plain(report)),
        "attempts": str(errors),
        "log": str(details),
        "lines": str(ingestion.lines),
        "events": str(events),
        "output": output,
    }
    return [name for name, said in places.items() if SECRET in said]


@pytest.mark.core
def test_a_policy_that_fails_the_task_says_how_many_rows_and_shows_three_without_values(
    ingestion: Ingestion, capsys: pytest.CaptureFixture[str]
) -> None:
    report = check(ingestion, "length(account) < 5", "fail")
    print_report(report, as_json=False)
    output = capsys.readouterr().out

    (failed,) = report.failed
    assert "5 rows failed the row policy 'short'" in (failed.error or "")
    figures = figures_of(report)
    assert figures["rows_failed"] == 5
    assert len(figures["samples"]) == 3
    kinds = {"id: ••• (bigint), account: ••• (string, 13 characters)", "id: ••• (bigint), account: NULL"}
    assert set(figures["samples"]) <= kinds
    assert output.count("account: ") == 3
    metadata = build_evaluation(dg.AssetKey("k"), failed.checks[0]).metadata
    assert isinstance(metadata["samples"], dg.TableMetadataValue)
    assert [record.data["row"] for record in metadata["samples"].records] == figures["samples"]
    assert find_secrets(ingestion, report, output) == []


def test_rows_that_were_set_aside_are_shown_from_the_files_with_what_they_failed(
    ingestion: Ingestion, capsys: pytest.CaptureFixture[str]
) -> None:
    report = check(ingestion, "length(account) < 5 AND size(tags) < 3 AND raw IS NOT NULL", "err_file")
    print_report(report, as_json=False)
    output = capsys.readouterr().out

    figures = figures_of(report)
    assert (figures["rows_set_aside"], len(figures["samples"])) == (5, 3)
    assert {sample.partition(", account")[0] for sample in figures["samples"]} == {"short: id: ••• (bigint)"}
    assert {sample.partition(", tags")[2] for sample in figures["samples"]} == {
        ": ••• (array, 2 elements), raw: ••• (binary, 2 bytes)"
    }
    assert output.count("account: ") == 3, "the check for the share of quarantine repeats them"
    assert find_secrets(ingestion, report, output) == []
    publication = report.datasets[0].publication
    assert publication is not None
    (kept,) = ingestion.stores.commits.load_publications(publication.sequence_id)
    shown = [each["figures"]["samples"] for each in kept.details["checks"] if "samples" in each["figures"]]
    assert shown == [figures["samples"]] * 2, "a publication that is told of later shows them as well"


@pytest.mark.parametrize("on_failure", ["fail", "err_file"])
def test_a_job_may_show_values_or_nothing_of_rows(ingestion: Ingestion, on_failure: str) -> None:
    shown = figures_of(check(ingestion, "account IS NULL OR account = 'DE'", on_failure, samples="values"))
    assert [SECRET in sample for sample in shown["samples"]] == [True] * 3
    begins = "" if on_failure == "fail" else "short: "
    assert {sample.rstrip("0123456789'").removesuffix(SECRET) for sample in shown["samples"]} == {
        f"{begins}id: {n}, account: '" for n in (10, 20, 30)
    }
    figures = figures_of(check(ingestion, "account IS NULL OR account = 'DE'", on_failure, samples="none"))
    assert "samples" not in figures
    assert figures["rows_failed" if on_failure == "fail" else "rows_set_aside"] == 4


def test_a_share_of_quarantine_that_is_too_large_shows_rows_although_nothing_was_published(
    ingestion: Ingestion,
) -> None:
    report = check(ingestion, "length(account) < 5", "err_file", quarantine_fraction_max=0.1)
    figures = figures_of(report, "quarantine_fraction")
    assert (report.datasets[0].publication, len(figures["samples"])) == (None, 3)


def test_a_failure_is_known_as_itself_where_its_rows_can_no_longer_be_read(
    ingestion: Ingestion, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError("the source went away")

    monkeypatch.setattr(extractor, "look_at_failed", fail)
    report = check(ingestion, "length(account) < 5", "fail")
    assert "at least one row failed the row policy 'short'" in (report.datasets[0].error or "")
    assert figures_of(report) == {}


def test_a_task_without_such_rows_is_read_once(ingestion: Ingestion, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []
    monkeypatch.setattr(extractor, "look_at_failed", lambda *arguments: looked.append(arguments))
    report = check(ingestion, "id > 0", "fail")
    assert ([each.error for each in report.datasets], looked) == ([None], [])
