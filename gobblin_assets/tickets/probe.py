"""One attempt at a probe: a question that is answered by the end that the attempt reports."""

from collections.abc import Callable
from typing import Any

from gobblin_assets.errors import FencedError, GobblinError, RejectedError, family_of
from gobblin_assets.jobs.ingest.engine_port import AnnouncedEngine
from gobblin_assets.model.job_ticket import ProbeKind, ProbeQuestion, SentTicket
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.tickets import AttemptEnd
from gobblin_assets.tickets.probe_answers import TEXT_CHARACTERS_MAX, bound_answer
from gobblin_assets.tickets.probe_dry_run import answer_dry_run
from gobblin_assets.tickets.probe_suggestions import answer_suggestion


def answer_probe(
    sent: SentTicket,
    question: ProbeQuestion,
    stores: Stores,
    open_spark: Callable[[], AnnouncedEngine],
    say: Callable[[str], None],
) -> tuple[AttemptEnd, dict[str, Any]]:
    """The end and its details. What is wrong at the place, such as a password, is an answer too: it names the field."""
    try:
        if question.kind is ProbeKind.DRY_RUN:
            answer = answer_dry_run(sent, stores, open_spark, say)
        else:
            answer = answer_suggestion(question, open_spark)
    except FencedError:
        raise
    except GobblinError as error:
        return AttemptEnd.FAILED, describe_failure(error)
    said = {"family": None, "message": "", "hint": "", "field": ""}
    return AttemptEnd.COMPLETE, {**said, "answer": bound_answer(answer)}


def describe_failure(error: GobblinError) -> dict[str, Any]:
    field = error.field if isinstance(error, RejectedError) else ""
    message = error.message.removeprefix(f"{field}: ")[:TEXT_CHARACTERS_MAX]
    return {"family": family_of(error).value, "message": message, "hint": error.hint, "field": field}
