"""A ticket is done once and counted once in every order of moves, and no rule of tickets can be left out."""

import pytest

from tests.models import tickets as models
from tests.models import worker_tickets as worker_models
from tests.models.exhaustive_search import search


def name_of(model: object) -> str:
    return type(model).__name__ if isinstance(model, models.Tickets) else ""


def test_no_order_of_moves_leads_to_a_fault() -> None:
    found = search(models.Tickets())
    assert found.fault is None, found
    assert found.states == 9127


def test_a_question_is_asked_once_and_answered_or_given_up_once() -> None:
    found = search(models.Questions())
    assert found.fault is None, found
    assert found.states == 1717


@pytest.mark.parametrize(
    ("model", "fault", "depth"),
    [
        (models.NamesAtEachTry(), "DONE TWICE", 10),
        (models.CountsWhatItKnows(), "MISCOUNTED", 11),
        (models.CountsWithoutIds(), "MISCOUNTED", 7),
        (models.TakesLateReports(), "ENDED TWICE", 8),
        (models.EndsBeforeItRuns(), "LOST", 4),
        (models.ReadsAgain(), "READ TWICE", 9),
        (models.AsksAgain(), "ASKED TWICE", 7),
        (models.AnswersLate(), "ENDED TWICE", 8),
    ],
    ids=name_of,
)
def test_a_rule_that_is_left_out_is_missed(model: models.Tickets, fault: str, depth: int) -> None:
    found = search(model)
    assert (found.fault, found.depth) == (fault, depth), found


def test_processes_of_a_worker_follow_each_other_until_somebody_wants_it_to_end() -> None:
    found = search(worker_models.WorkerTickets())
    assert found.fault is None, found
    assert found.states == 130953


@pytest.mark.parametrize(
    ("model", "fault", "depth"),
    [
        (worker_models.DrainsForGood(), "STOPPED", 5),
        (worker_models.DrainsFromBeside(), "STOPPED", 10),
        (worker_models.ClaimsWhatHasEnded(), "GOES ON", 4),
        (worker_models.LeavesOlderOpen(), "BESIDE", 8),
        (worker_models.WithdrawsTheTicketAlone(), "GOES ON", 4),
        (worker_models.BeginsBeside(), "BESIDE", 9),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, worker_models.WorkerTickets) else "",
)
def test_a_rule_of_workers_that_is_left_out_is_missed(
    model: worker_models.WorkerTickets, fault: str, depth: int
) -> None:
    found = search(model)
    assert (found.fault, found.depth) == (fault, depth), found
