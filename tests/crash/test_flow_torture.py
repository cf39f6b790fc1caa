"""A flow whose service, executor and attempts are killed again and again: source and lake are equal in the end."""

import random
from collections import Counter

import pytest
from sqlalchemy import text

from tests.support.flow_torture import VICTIMS, FlowTorture, find_port, plan_deaths
from tests.support.ticket_shop import TicketShop, ticket_shop

__all__ = ["ticket_shop"]

HISTORIES = 36
KILLS_MIN = 200
ROUNDS_MAX = 12


def test_all_histories_together_die_everywhere_and_often() -> None:
    deaths = [plan_deaths(number) for number in range(HISTORIES)]
    for victim, points in VICTIMS.items():
        assert {death for planned in deaths for death in planned[victim]} == set(points)
    assert sum(len(each) for planned in deaths for each in planned.values()) >= KILLS_MIN


@pytest.mark.rotating(of=HISTORIES)
@pytest.mark.parametrize("history", range(HISTORIES))
def test_whatever_is_killed_each_row_is_published_once(ticket_shop: TicketShop, history: int) -> None:
    planned = plan_deaths(history)
    torture = FlowTorture(ticket_shop, planned, random.Random(history), find_port())
    try:
        executions = [torture.create()]
        assert torture.await_end(executions[0]) == "COMPLETE", torture.say()
        while not torture.is_over():
            assert len(executions) < ROUNDS_MAX, f"{torture.count_deaths()} of {planned}\n{torture.say()}"
            torture.add_rows()
            executions.append(torture.run())
            assert torture.await_end(executions[-1]) == "COMPLETE", torture.say()
        torture.add_rows()
        executions.append(torture.run())
        assert torture.await_end(executions[-1]) == "COMPLETE", torture.say()
    finally:
        torture.end()
    assert torture.count_deaths().total() == sum(map(len, planned.values()))
    check_once(ticket_shop, executions)


def check_once(shop: TicketShop, executions: list[int]) -> None:
    with shop.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM gobblin_service.flow_version")).scalar_one() == 1
        made = connection.execute(text("SELECT execution_id FROM gobblin_service.flow_execution")).scalars()
        assert sorted(made) == executions
        (job,) = connection.execute(text("SELECT job_name FROM gobblin_service.flow_job")).scalars()
        tickets = list(connection.execute(text("SELECT ticket_id FROM gobblin.job_ticket")).scalars())
    assert len(tickets) == len(executions)
    assert shop.lake_rows(job) == shop.source_rows()
    told: Counter[str] = Counter()
    for ticket_id in tickets:
        told += shop.list_told(ticket_id)
    assert told == shop.list_sequences()
