"""Questions of planning to a database, as values: plans of many partitions ask together, in few round trips.

A plan is a generator that yields its questions and is sent the answers. Plans that run together go on in step: each
step asks one question of each.
"""

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from gobblin_assets.model.watermark import Scalar, WatermarkType
from gobblin_assets.sources.jdbc.catalog import Answer, Catalog, Estimate, EstimateQuestion, Question, RowQuestion
from gobblin_assets.sources.jdbc.dialect import Dialect, write_table
from gobblin_assets.sources.jdbc.layout import Layout, write_where

_Plan = TypeVar("_Plan")


Asking = Generator[Question, Any, _Plan]
"""Yields questions, is sent their answers, and returns a plan."""


def answer_one(catalog: Catalog, question: Question) -> Answer | Exception:
    """The answer, or the error that the question raised."""
    try:
        if isinstance(question, RowQuestion):
            return catalog.fetch_row(question.sql, question.types)
        return catalog.estimate(question.table, question.condition)
    except Exception as error:  # noqa: BLE001  it is raised in the plan that asked
        return error


def plan_together(catalog: Catalog, plans: Sequence[Asking[_Plan]]) -> list[_Plan | Exception]:
    """Run the plans in step; each gives its own result, or the error that it raised."""
    results: dict[int, _Plan | Exception] = {}
    waiting: list[tuple[int, Question]] = []

    def go_on(number: int, answer: Answer | Exception | None) -> None:
        try:
            plan = plans[number]
            question = plan.throw(answer) if isinstance(answer, Exception) else plan.send(answer)
        except StopIteration as done:
            results[number] = done.value
        except Exception as error:  # noqa: BLE001  the caller raises it for this plan
            results[number] = error
        else:
            waiting.append((number, question))

    for number in range(len(plans)):
        go_on(number, None)
    while waiting:
        asked, waiting = waiting, []
        answers = catalog.answer_together([question for _number, question in asked])
        for (number, _question), answer in zip(asked, answers, strict=True):
            go_on(number, answer)
    return [results[number] for number in range(len(plans))]


def ask_extreme(
    dialect: Dialect, layout: Layout, function: str, name: str, kind: WatermarkType, conditions: Sequence[str]
) -> Asking[Scalar | None]:
    """The least or greatest value of an expression; ``function`` is MIN or MAX. None without rows."""
    extreme = f"{function}({dialect.in_order(name, kind)})"
    sql = (
        f"SELECT {dialect.show(extreme, kind)} AS {dialect.quote('c0')}"
        f" FROM {write_table(dialect, layout.table.name)}{write_where(*layout.filters, *conditions)}"
    )
    found: Scalar | None = (yield RowQuestion(sql, (kind,)))[0]
    return found


def ask_count(dialect: Dialect, layout: Layout, condition: str) -> Asking[int]:
    """How many rows hold the condition."""
    sql = (
        f"SELECT COUNT(*) AS {dialect.quote('c0')} FROM {write_table(dialect, layout.table.name)}"
        f"{write_where(*layout.filters, condition)}"
    )
    found = (yield RowQuestion(sql, (WatermarkType.LONG,), repeats=True))[0]
    return found if isinstance(found, int) else 0


def ask_estimate(layout: Layout, condition: str = "") -> Asking[Estimate]:
    """How many rows the source expects the condition to give."""
    found: Estimate = yield EstimateQuestion(layout.table, write_where(*layout.filters, condition))
    return found
