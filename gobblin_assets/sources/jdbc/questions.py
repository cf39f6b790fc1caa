"""What planning asks a database, as values: plans of many partitions ask together, in few round trips.

A plan is a generator that yields its questions and is sent the answers. Plans that run together go on in step: each
step asks one question of each.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from gobblin_assets.model.watermark import Scalar, WatermarkType
from gobblin_assets.sources.jdbc.catalog import Estimate, Table

_Plan = TypeVar("_Plan")


@dataclass(frozen=True, slots=True)
class RowQuestion:
    """The single row of a query whose columns have these types. ``repeats``: every partition of a table asks it."""

    sql: str
    types: tuple[WatermarkType, ...]
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class EstimateQuestion:
    """How many rows of the table a condition gives."""

    table: Table
    condition: str


Question = RowQuestion | EstimateQuestion
Answer = tuple[Scalar | None, ...] | Estimate

Asking = Generator[Question, Any, _Plan]
"""Yields questions, is sent their answers, and returns a plan."""


class _Answering(Protocol):
    def fetch_row(self, sql: str, types: Sequence[WatermarkType]) -> tuple[Scalar | None, ...]: ...

    def estimate(self, table: Table, condition: str) -> Estimate: ...

    def answer_together(self, questions: Sequence[Question]) -> Sequence[Answer | Exception]: ...


def answer_one(catalog: _Answering, question: Question) -> Answer | Exception:
    """The answer, or the error that the question raised."""
    try:
        if isinstance(question, RowQuestion):
            return catalog.fetch_row(question.sql, question.types)
        return catalog.estimate(question.table, question.condition)
    except Exception as error:  # noqa: BLE001  it is raised in the plan that asked
        return error


def plan_together(catalog: _Answering, plans: Sequence[Asking[_Plan]]) -> list[_Plan | Exception]:
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
