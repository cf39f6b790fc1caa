"""Tickets as JSON, both ways, and what is refused of them."""

import json
import uuid
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.job_ticket import (
    JobTicket,
    LogId,
    ProbeKind,
    ProbeQuestion,
    SentTicket,
    TicketId,
    TicketSelection,
    TicketShape,
    TicketVerb,
    sent_ticket_from_json,
    sent_ticket_to_json,
)

JOB: Final = {"job": "shop", "destination": "/lake", "datasets": [{"urn": "public.orders"}]}
TICKET: Final = JobTicket(
    "gobblin-job:/sales/orders/lake", "3", "tables to files", JOB, description="x", template_uri="FS:///a.template"
)
SELECTION: Final = TicketSelection(("public.orders",), ("a", "b"), (("c", "d"),), Mode.REFRESH, 7)
SENT: Final = SentTicket(
    TicketId(uuid.UUID(int=1)), TicketVerb.ADD, "local", TICKET, SELECTION, log_id=LogId(uuid.UUID(int=2))
)
CANCEL: Final = SentTicket(TicketId(uuid.UUID(int=3)), TicketVerb.CANCEL, "local", cancels=TicketId(uuid.UUID(int=1)))
PLAIN: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text("a0é\n\\u"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=3),
    max_leaves=8,
)


DRY_RUN: Final = replace(SENT, verb=TicketVerb.PROBE, question=ProbeQuestion(ProbeKind.DRY_RUN, "ann"))
COLUMNS: Final = replace(
    DRY_RUN,
    ticket=None,
    question=ProbeQuestion(ProbeKind.COLUMNS, "ann", {"type": "jdbc", "connection": "shop"}, names=("a", "b")),
)
PATHS: Final = replace(DRY_RUN, ticket=None, question=ProbeQuestion(ProbeKind.PATHS, root="/lake", names=("a",)))
UPDATE: Final = replace(SENT, verb=TicketVerb.UPDATE, ticket=replace(TICKET, shape=TicketShape.WORKER))


@pytest.mark.parametrize(
    "sent", [SENT, CANCEL, UPDATE, DRY_RUN, COLUMNS, PATHS, replace(SENT, selection=TicketSelection(), log_id=None)]
)
def test_a_ticket_comes_back_as_it_was(sent: SentTicket) -> None:
    back = sent_ticket_from_json(json.loads(json.dumps(sent_ticket_to_json(sent))))
    assert back == sent
    assert back.digest == sent.digest


@given(PLAIN)
def test_whatever_the_options_of_a_job_are_the_digest_stays(options: object) -> None:
    sent = replace(SENT, ticket=replace(TICKET, job={**JOB, "more": options}))
    back = sent_ticket_from_json(json.loads(json.dumps(sent_ticket_to_json(sent))))
    assert back.digest == sent.digest


@pytest.mark.parametrize(
    "changed",
    [
        replace(SENT, executor="other"),
        replace(SENT, selection=replace(SELECTION, missing_max=8)),
        replace(SENT, ticket=replace(TICKET, version="4")),
        replace(SENT, ticket=replace(TICKET, job={**JOB, "destination": "/other"})),
        DRY_RUN,
    ],
)
def test_a_changed_ticket_has_another_digest(changed: SentTicket) -> None:
    assert changed.digest != SENT.digest


def set_at(data: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(data))
    *before, last = path.split("/")
    place = changed
    for each in before:
        place = place[each]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("verb", "MOVE", "verb"),
        ("verb", ..., "verb"),
        ("verb", "CANCEL", "cancels"),
        ("verb", "UPDATE", "verb"),
        ("verb", "DELETE", "verb"),
        ("cancels", str(uuid.UUID(int=4)), "cancels"),
        ("ticket", None, "ticket"),
        ("ticket", [], "ticket"),
        ("ticket_id", None, "ticket_id"),
        ("ticket_id", "seven", "ticket_id"),
        ("ticket_id", 7, "ticket_id"),
        ("log_id", "seven", "log_id"),
        ("executor", "", "executor"),
        ("executor", "a b", "executor"),
        ("executor", "x" * 129, "executor"),
        ("executor", 5, "executor"),
        ("surprise", 1, "surprise"),
        ("a\0b", 1, "a\\0b"),
        ("\ud800", 1, "\\ud800"),
        ("ticket/uri", "gobblin-job:/sales/orders", "ticket.uri"),
        ("ticket/uri", "gobblin-job:/sales/or ders/lake", "ticket.uri"),
        ("ticket/uri", f"gobblin-job:/sales/{'x' * 129}/lake", "ticket.uri"),
        ("ticket/uri", None, "ticket.uri"),
        ("ticket/version", 3, "ticket.version"),
        ("ticket/version", "", "ticket.version"),
        ("ticket/capability", ..., "ticket.capability"),
        ("ticket/description", "x" * 2_001, "ticket.description"),
        ("ticket/description", "a\x1bb", "ticket.description"),
        ("ticket/shape", "circle", "ticket.shape"),
        ("ticket/job", "shop.yaml", "ticket.job"),
        ("ticket/job", {}, "ticket.job.job"),
        ("ticket/job/job", "", "ticket.job.job"),
        ("ticket/job/more", float("nan"), "ticket.job"),
        ("ticket/job/more", "\ud800", "ticket.job"),
        ("ticket/job/job", "a\0b", "ticket.job"),
        ("ticket/job/more", [{"\\\0": 1}], "ticket.job"),
        ("ticket/more", 1, "ticket.more"),
        ("selection", [], "selection"),
        ("selection/mode", "often", "selection.mode"),
        ("selection/missing_max", 0, "selection.missing_max"),
        ("selection/missing_max", True, "selection.missing_max"),
        ("selection/missing_max", "7", "selection.missing_max"),
        ("selection/ranges", [["a"]], "selection.ranges[0]"),
        ("selection/ranges", ["ab"], "selection.ranges[0]"),
        ("selection/ranges", [["a", 1]], "selection.ranges[0][1]"),
        ("selection/partitions", "a", "selection.partitions"),
        ("selection/partitions", ["a", None], "selection.partitions[1]"),
        ("selection/more", 1, "selection.more"),
    ],
)
def test_bad_input_is_refused_by_its_field(path: str, value: object, field: str) -> None:
    with pytest.raises(RejectedError) as refused:
        sent_ticket_from_json(set_at(sent_ticket_to_json(SENT), path, value))
    assert refused.value.field == field


@pytest.mark.parametrize("data", [None, [], "ticket", 7])
def test_what_is_no_object_is_refused(data: object) -> None:
    with pytest.raises(RejectedError):
        sent_ticket_from_json(data)


def test_a_cancel_has_no_job() -> None:
    with pytest.raises(RejectedError) as refused:
        sent_ticket_from_json({**sent_ticket_to_json(CANCEL), "ticket": sent_ticket_to_json(SENT)["ticket"]})
    assert refused.value.field == "ticket"
    with pytest.raises(RejectedError):
        CANCEL.get_job_ticket()


def test_a_ticket_without_a_question_is_as_it_was_before_there_were_any() -> None:
    assert "question" not in sent_ticket_to_json(SENT)


@pytest.mark.parametrize(
    ("sent", "path", "value", "field"),
    [
        (SENT, "verb", "PROBE", "question"),
        (DRY_RUN, "verb", "ADD", "question"),
        (DRY_RUN, "ticket", None, "ticket"),
        (DRY_RUN, "ticket/shape", "worker", "verb"),
        (DRY_RUN, "question/source", {}, "question.source"),
        (DRY_RUN, "question/kind", "secrets", "question.kind"),
        (COLUMNS, "ticket", sent_ticket_to_json(SENT)["ticket"], "ticket"),
        (COLUMNS, "question/source", None, "question.source"),
        (COLUMNS, "question/source/more", "\ud800", "question.source"),
        (COLUMNS, "question/names", [], "question.names"),
        (COLUMNS, "question/names", ["a\x1bb"], "question.names[0]"),
        (COLUMNS, "question/root", "/x", "question.root"),
        (PATHS, "question/root", None, "question.root"),
    ],
)
def test_a_bad_question_is_refused_by_its_field(sent: SentTicket, path: str, value: object, field: str) -> None:
    with pytest.raises(RejectedError) as refused:
        sent_ticket_from_json(set_at(sent_ticket_to_json(sent), path, value))
    assert refused.value.field == field
