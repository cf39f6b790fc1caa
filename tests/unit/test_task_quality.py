"""Quality results follow from counts and schemas alone."""

import pytest

from gobblin_assets.jobs.ingest.quality import check_rows, check_tasks
from gobblin_assets.run.quality_checks import check_dead_letters, check_quarantine
from gobblin_assets.spec.job_spec import RowPolicySpec, TaskPolicySpec

COLUMNS = {"id": "int", "note": "string"}


def _passed(
    kind: str,
    *,
    read: int = 0,
    written: int = 0,
    aside: int = 0,
    columns: dict[str, str] | None = None,
    previous: dict[str, str] | None = None,
    **figures: object,
) -> bool:
    policy = TaskPolicySpec.model_validate({"name": "p", "kind": kind, "blocking": False, **figures})
    (result,) = check_tasks(
        [policy],
        rows_read=read,
        rows_written=written,
        rows_set_aside=aside,
        columns=COLUMNS if columns is None else columns,
        previous_columns=previous,
    )
    assert (result.name, result.blocking) == ("p", False)
    assert result.description
    return result.passed


@pytest.mark.parametrize(
    ("read", "written", "aside", "figures", "expected"),
    [
        (10, 10, 0, {}, True),
        (10, 8, 2, {}, True),
        (10, 9, 0, {}, False),
        (10, 11, 0, {}, False),
        (0, 0, 0, {}, True),
        (9, 5, 4, {"min_row_count": 5}, True),
        (9, 4, 5, {"min_row_count": 5}, False),
        (9, 6, 0, {"max_row_count": 5}, False),
        (9, 5, 0, {"min_row_count": 5, "max_row_count": 5}, True),
        (0, 0, 0, {"min_row_count": 1}, False),
    ],
)
def test_row_count(read: int, written: int, aside: int, figures: dict[str, object], expected: bool) -> None:
    assert _passed("row_count", read=read, written=written, aside=aside, **figures) is expected


@pytest.mark.parametrize(
    ("read", "written", "aside", "allowed", "expected"),
    [
        (100, 95, 0, 0.05, True),
        (100, 94, 0, 0.05, False),
        (100, 106, 0, 0.05, False),
        (100, 50, 50, 0.0, True),
        (0, 0, 0, 0.0, True),
        (0, 1, 0, 0.99, False),
    ],
)
def test_row_count_range(read: int, written: int, aside: int, allowed: float, expected: bool) -> None:
    assert _passed("row_count_range", read=read, written=written, aside=aside, range_fraction=allowed) is expected


@pytest.mark.parametrize(
    ("previous", "columns", "expected"),
    [
        (None, COLUMNS, True),
        (COLUMNS, COLUMNS, True),
        (COLUMNS, {**COLUMNS, "new": "date"}, True),
        (COLUMNS, {"id": "int"}, False),
        (COLUMNS, {**COLUMNS, "id": "bigint"}, False),
        (COLUMNS, {}, True),
    ],
)
def test_schema_compatible(previous: dict[str, str] | None, columns: dict[str, str], expected: bool) -> None:
    assert _passed("schema_compatible", previous=previous, columns=columns) is expected


def test_a_schema_check_says_what_changed() -> None:
    policy = TaskPolicySpec.model_validate({"name": "p", "kind": "schema_compatible"})
    (result,) = check_tasks(
        [policy],
        rows_read=0,
        rows_written=0,
        rows_set_aside=0,
        columns={"id": "bigint", "new": "date"},
        previous_columns=COLUMNS,
    )
    assert result.description == "gone: note; retyped: id (int → bigint); added: new"
    assert dict(result.figures) == {"dropped": 1, "retyped": 1, "added": 1}


def test_each_policy_gets_its_result_in_order() -> None:
    policies = [
        TaskPolicySpec.model_validate({"name": "b", "kind": "row_count"}),
        TaskPolicySpec.model_validate({"name": "a", "kind": "row_count", "min_row_count": 5}),
    ]
    results = check_tasks(policies, rows_read=1, rows_written=1, rows_set_aside=0, columns={}, previous_columns=None)
    assert [(result.name, result.passed, result.blocking) for result in results] == [
        ("b", True, True),
        ("a", False, True),
    ]


def _check_rows(broken: str | None, aside: int | None, *kinds: str) -> dict[str, bool]:
    policies = [
        RowPolicySpec.model_validate({"name": f"{kind}_{number}", "check": "x > 0", "on_failure": kind})
        for number, kind in enumerate(kinds)
    ]
    results = check_rows(policies, broken=broken, rows_set_aside=aside)
    assert all(result.blocking == result.name.startswith("fail") for result in results)
    return {result.name: result.passed for result in results}


def test_a_publication_shows_that_its_rows_passed() -> None:
    assert _check_rows(None, 0, "err_file", "fail", "optional") == {"err_file_0": True, "fail_1": True}


def test_a_policy_that_ended_a_task_has_failed_and_nothing_is_said_of_the_others() -> None:
    assert _check_rows("fail_1", None, "fail", "fail", "err_file") == {"fail_1": False}
    assert _check_rows("fail_1", 0, "fail", "fail") == {"fail_0": True, "fail_1": False}, "a part was published"


def test_rows_set_aside_fail_the_one_policy_that_can_have_done_it() -> None:
    assert _check_rows(None, 3, "err_file") == {"err_file_0": False}
    assert _check_rows(None, 3, "err_file", "err_file", "fail") == {"fail_2": True}


@pytest.mark.parametrize(
    ("written", "aside", "allowed", "expected"),
    [(99, 1, 0.01, True), (98, 2, 0.01, False), (0, 5, 1.0, True), (0, 0, 0.0, True), (5, 0, 0.0, True)],
)
def test_no_larger_share_than_allowed_is_set_aside(written: int, aside: int, allowed: float, expected: bool) -> None:
    result = check_quarantine(rows_written=written, rows_set_aside=aside, fraction_max=allowed)
    assert result.passed is expected
    assert result.blocking


@pytest.mark.parametrize(
    ("rows", "dead_letters", "fraction_max", "count_max", "expected"),
    [
        (95, 5, 0.05, 0, True),
        (94, 6, 0.05, 0, False),
        (3, 1, 0.05, 1, True),
        (2, 2, 0.05, 1, False),
        (0, 0, 0.0, 0, True),
        (0, 3, 0.0, 3, True),
    ],
)
def test_dead_letters_pass_by_their_share_or_while_they_are_few(
    rows: int, dead_letters: int, fraction_max: float, count_max: int, *, expected: bool
) -> None:
    result = check_dead_letters(rows=rows, dead_letters=dead_letters, fraction_max=fraction_max, count_max=count_max)

    assert result.passed is expected
    assert result.blocking
    assert result.description.startswith(f"{dead_letters} of {rows + dead_letters} records are dead letters")
