"""Families become outcomes: only failures that a retry could mend are retried, and failed datasets are named."""

import uuid

import dagster as dg
import pytest

from gobblin_assets.commit.sequence import Publication
from gobblin_assets.dagster.metadata import build_evaluations, build_materialization, is_recovered
from gobblin_assets.dagster.outcomes import RETRY_TRIES_MAX, decide_error, decide_failed
from gobblin_assets.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    GobblinError,
    OutcomeUnknownError,
    RejectedError,
    RetryableError,
)
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import WHOLE, AssetPartition
from gobblin_assets.model.state import DatasetId, DatasetOutcome, RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.job_kind import CheckResult
from gobblin_assets.run.run_values import DatasetReport

FINAL = (
    FencedError("taken over"),
    ConflictError("contradicts"),
    RejectedError("is wrong", field="destination"),
    CorruptionError("impossible"),
)
URN = DatasetUrn("orders")
KEY = dg.AssetKey(["shop", "orders"])


def failed(
    family: str, outcome: DatasetOutcome = DatasetOutcome.FAILED, key: str | None = "2013-01-01"
) -> DatasetReport:
    return DatasetReport(URN, AssetPartition(key), outcome, error=f"a {family}", error_family=family)


def published(partition: AssetPartition = WHOLE, **changes: object) -> DatasetReport:
    values: dict[str, object] = {
        "sequence_id": SequenceId(uuid.UUID(int=7)),
        "dataset_id": DatasetId(1),
        "job": JobName("shop"),
        "urn": URN,
        "partition": partition.key or "",
        "run_id": RunId(uuid.UUID(int=8)),
        "mode": Mode.APPEND,
        "replaces": False,
        "complete": True,
        "version": 3,
        "row_count": 12,
        "file_count": 2,
        "file_bytes": 4_096,
        "rows_by_role": {"data": 10, "quarantine": 2},
        "watermarks": {"orders": ("2013-01-31", "2013-02-28")},
        "details": {},
        "rows_total": 45,
    }
    return DatasetReport(
        URN,
        partition,
        DatasetOutcome.COMMITTED,
        publication=Publication(**(values | changes)),  # type: ignore[arg-type]  # values of several types in one dict
        columns={"id": "bigint"},
        checks=(CheckResult("enough", passed=False, blocking=False, description="10 rows", figures={"rows": 10}),),
        figures={"duration_s": 1.5, "rows_per_s": 6.7},
    )


class TestErrors:
    @pytest.mark.parametrize("error", [RetryableError("busy"), OutcomeUnknownError("lost")])
    def test_what_may_pass_is_retried_within_a_bound(self, error: GobblinError) -> None:
        assert isinstance(decide_error(error, retry_number=RETRY_TRIES_MAX - 1), dg.RetryRequested)
        last = decide_error(error, retry_number=RETRY_TRIES_MAX)
        assert isinstance(last, dg.Failure)
        assert not last.allow_retries

    @pytest.mark.parametrize("error", FINAL)
    def test_what_a_person_must_see_is_not_retried(self, error: GobblinError) -> None:
        outcome = decide_error(error, retry_number=0)
        assert isinstance(outcome, dg.Failure)
        assert not outcome.allow_retries
        assert error.message in (outcome.description or "")
        assert outcome.metadata["gobblin/error_family"].value == type(error).__name__

    def test_a_leaf_counts_as_its_family(self) -> None:
        class TooWideError(RejectedError):
            pass

        outcome = decide_error(TooWideError("is wrong", field="x"), retry_number=0)
        assert isinstance(outcome, dg.Failure)
        assert outcome.metadata["gobblin/error_family"].value == "RejectedError"


class TestFailedDatasets:
    def test_nothing_failed(self) -> None:
        assert decide_failed([], good_count=2, retry_number=0) is None

    def test_a_retry_is_asked_for_only_if_it_could_mend_all(self) -> None:
        busy, wrong = failed("RetryableError"), failed("RejectedError", key="2013-02-01")
        assert isinstance(decide_failed([busy], good_count=0, retry_number=0), dg.RetryRequested)
        outcome = decide_failed([busy, wrong], good_count=3, retry_number=0)
        assert isinstance(outcome, dg.Failure)
        assert not outcome.allow_retries
        assert "2 of 5 dataset partitions failed" in (outcome.description or "")
        assert "orders [2013-02-01]: FAILED: a RejectedError" in (outcome.description or "")

    def test_a_blocked_dataset_waits_for_a_person(self) -> None:
        blocked = DatasetReport(URN, WHOLE, DatasetOutcome.BLOCKED, error="after 5 tries")
        outcome = decide_failed([blocked], good_count=0, retry_number=0)
        assert isinstance(outcome, dg.Failure)
        assert "orders: BLOCKED: after 5 tries" in (outcome.description or "")

    def test_a_long_list_is_cut_and_counted(self) -> None:
        many = [failed("RejectedError", key=str(number)) for number in range(25)]
        outcome = decide_failed(many, good_count=0, retry_number=0)
        assert isinstance(outcome, dg.Failure)
        assert (outcome.description or "").endswith("… and 5 more")


class TestMaterialization:
    def test_carries_the_sequence_the_watermark_and_the_figures(self) -> None:
        event = build_materialization(KEY, published(AssetPartition("2013-02-01")), Role.DATA, uri="/lake/x")
        shown = {name: value.value for name, value in event.metadata.items() if name != "dagster/column_schema"}
        assert event.partition == "2013-02-01"
        assert shown == {
            "gobblin/sequence_id": str(uuid.UUID(int=7)),
            "gobblin/version": 3,
            "gobblin/mode": "append",
            "gobblin/complete": True,
            "gobblin/recovered": False,
            "gobblin/rows": 10,
            "dagster/partition_row_count": 45,
            "gobblin/files": 2,
            "gobblin/bytes": 4_096,
            "gobblin/watermark_before": "2013-01-31",
            "gobblin/watermark_after": "2013-02-28",
            "gobblin/duration_s": 1.5,
            "gobblin/rows_per_s": 6.7,
            "gobblin/bytes_per_s": 2730.7,
            "dagster/uri": "/lake/x",
        }
        schema = event.metadata["dagster/column_schema"].value
        assert [(column.name, column.type) for column in schema.columns] == [("id", "bigint")]

    @pytest.mark.parametrize(
        ("partition", "name"), [(WHOLE, "dagster/row_count"), (AssetPartition("a"), "dagster/partition_row_count")]
    )
    def test_says_the_rows_of_the_partition_beside_those_of_the_publication(
        self, partition: AssetPartition, name: str
    ) -> None:
        report = published(partition, rows_by_role={"data": 0}, rows_total=10)
        shown = build_materialization(KEY, report, Role.DATA, uri="/x").metadata
        assert (shown[name].value, shown["gobblin/rows"].value) == (10, 0)

    def test_the_log_line_says_what_was_published(self) -> None:
        event = build_materialization(KEY, published(AssetPartition("a"), recovered=True), Role.DATA, uri="/x")
        assert event.description == "Published orders [a]: rows: 10, files: 2 (append, recovered)"
        event = build_materialization(KEY, published(), Role.QUARANTINE, uri="/x")
        assert event.description == "Published orders, quarantine: rows: 2 (append)"

    def test_the_quarantine_counts_its_own_rows(self) -> None:
        event = build_materialization(KEY, published(), Role.QUARANTINE, uri="/x")
        assert event.metadata["gobblin/rows"].value == 2
        assert "gobblin/watermark_after" not in event.metadata

    def test_a_recovered_sequence_is_told_from_one_of_this_run(self) -> None:
        recovered = build_materialization(KEY, published(recovered=True), Role.DATA, uri="/x")
        assert is_recovered(recovered)
        assert not is_recovered(build_materialization(KEY, published(), Role.DATA, uri="/x"))


class TestChecks:
    def test_each_result_and_whether_it_was_published(self) -> None:
        found = {each.check_name: each for each in build_evaluations(KEY, published(AssetPartition("a")))}
        assert (found["enough"].passed, found["enough"].severity) == (False, dg.AssetCheckSeverity.WARN)
        assert found["enough"].partition == "a"
        assert found["gobblin_published"].passed

    @pytest.mark.parametrize("outcome", [DatasetOutcome.BLOCKED, DatasetOutcome.FAILED, DatasetOutcome.FENCED])
    def test_a_dataset_that_got_nothing_out_fails_the_check(self, outcome: DatasetOutcome) -> None:
        (check,) = build_evaluations(KEY, DatasetReport(URN, WHOLE, outcome, error="why"))
        assert not check.passed
        assert check.description == f"{outcome.value}: why"
