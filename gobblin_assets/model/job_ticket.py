"""Tickets as values: a job with its options, as a service sends it to an executor, which runs it.

A sender makes the id of a ticket. So a ticket that is sent again after a lost answer is the same ticket, and one that
was changed under its id is refused.
"""

import datetime as dt
import hashlib
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NewType, TypeVar
from urllib.parse import unquote

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.extract import Mode

TicketId = NewType("TicketId", uuid.UUID)
LogId = NewType("LogId", uuid.UUID)
"""The id of a commit log: tickets, claims and reports are in the log that the job publishes through."""

MISSING_MAX_DEFAULT: Final = 1_000
"""Of each dataset, one run takes at most so many partitions that nobody named."""

_Word = TypeVar("_Word", bound=StrEnum)

_TEXT_CHARACTERS_MAX: Final = 2_000
_EXPIRY_S_MAX: Final = 10_000_000_000
_NAME_LENGTH_MAX: Final = 128
# Names of at most 128 characters, of which some take three: spaces, and what else an address has not.
_JOB_URI: Final = re.compile(r"gobblin-job:(/[^/\x00-\x20\x7f]{1,384}){3}")
_EXECUTOR_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# NUL as JSON writes it. A backslash that is a character is written as two.
_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


class TicketVerb(StrEnum):
    """The wish of a ticket. CANCEL: that another ticket ends; of a worker, behind a cut.

    UPDATE and DELETE are for workers, and end all that older tickets started for the job. UPDATE then starts a worker;
    DELETE removes what the source keeps for the job. PROBE asks a question: it publishes nothing.
    """

    ADD = "ADD"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CANCEL = "CANCEL"
    PROBE = "PROBE"


class ProbeKind(StrEnum):
    """The subject of a question: what a place has, or what the run of a job would read now."""

    TABLES = "tables"
    COLUMNS = "columns"
    TOPICS = "topics"
    PATHS = "paths"
    DRY_RUN = "dry_run"


class TicketShape(StrEnum):
    """The kind of work that a job is: a RUN ends by itself; a WORKER of a sink goes on until somebody ends it."""

    RUN = "run"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class TicketSelection:
    """The datasets and partitions that a run is asked for. ``ranges``: (first, last), both included.

    No ``datasets``: all. Neither ``partitions`` nor ``ranges``: each dataset that has no partitions, and of the others
    at most ``missing_max`` partitions that are over and not published, the oldest first. ``begun_by``, aware: only
    those that were over then, whenever the run begins.
    """

    datasets: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    ranges: tuple[tuple[str, str], ...] = ()
    mode: Mode = Mode.AUTO
    missing_max: int = MISSING_MAX_DEFAULT
    begun_by: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class JobTicket:
    """A job for an executor. ``uri``: ``gobblin-job:/<group>/<flow>/<job>``; ``job``: its options, as plain JSON.

    ``template_uri`` None: no template made it. ``capability`` says what the job does, in words that executors know.
    """

    uri: str
    version: str
    capability: str
    job: Mapping[str, Any]
    shape: TicketShape = TicketShape.RUN
    description: str = ""
    template_uri: str | None = None

    @property
    def job_name(self) -> str:
        """The name that decides paths, ledger and watermarks."""
        return str(self.job["job"])


@dataclass(frozen=True, slots=True)
class ProbeQuestion:
    """The question of a PROBE. ``source``: the options of a job's source; ``root``: of PATHS, where they begin.

    ``names``: of COLUMNS, the tables; of PATHS, the directory below the root, if not all of it is meant. A DRY_RUN asks
    of the ticket's job. ``asked_by``: the user for whom the answer is.
    """

    kind: ProbeKind
    asked_by: str = ""
    source: Mapping[str, Any] | None = None
    root: str | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SentTicket:
    """A ticket as it is sent to the executor of a name. ``cancels``: the ticket that a CANCEL ends.

    A CANCEL has no ``ticket``, and a PROBE only for a dry run; all others have one. ``log_id``: the log that the sender
    takes for the executor's; None: whichever it is. ``question``: of a PROBE. ``earlier``: tickets of the job that this
    one goes on from: what their runs published is not published again. ``expires_after_s``: a ticket that nobody has
    begun so long after it came into the log is not begun any more, by the log's clock; None: it waits for ever.
    ``asked_by``: what began the job without a service, such as dagster; empty: a service sends the ticket.
    """

    ticket_id: TicketId
    verb: TicketVerb
    executor: str
    ticket: JobTicket | None = None
    selection: TicketSelection = field(default_factory=TicketSelection)
    cancels: TicketId | None = None
    log_id: LogId | None = None
    question: ProbeQuestion | None = None
    earlier: tuple[TicketId, ...] = ()
    expires_after_s: float | None = None
    asked_by: str = ""

    @property
    def digest(self) -> bytes:
        """SHA-256 of all that it says."""
        return _digest(sent_ticket_to_json(self))

    def get_job_ticket(self) -> JobTicket:
        """RejectedError for a ticket without a job."""
        if self.ticket is None:
            raise RejectedError(f"a ticket that says {self.verb} has no job", field="ticket")
        return self.ticket


def is_job_uri(uri: str) -> bool:
    """Whether it names a flow group, a flow and a job."""
    return _JOB_URI.fullmatch(uri) is not None and all(
        len(unquote(each)) <= _NAME_LENGTH_MAX for each in uri.split("/")
    )


def names_of_job_uri(uri: str) -> tuple[str, str, str]:
    """The flow group, the flow and the job that the URI of a ticket's job names."""
    _, group, flow, job = map(unquote, uri.split("/", 3))
    return group, flow, job


def selection_to_json(selection: TicketSelection) -> dict[str, object]:
    # Selections without this time are as they were before there was any, and so are the digests of their tickets.
    fired = {} if selection.begun_by is None else {"begun_by": selection.begun_by.astimezone(dt.UTC).isoformat()}
    return {
        "datasets": list(selection.datasets),
        "partitions": list(selection.partitions),
        "ranges": [list(each) for each in selection.ranges],
        "mode": selection.mode.value,
        "missing_max": selection.missing_max,
        **fired,
    }


def selection_from_json(data: object, field_name: str = "selection") -> TicketSelection:
    """The same, back. RejectedError names the field."""
    read = _Fields(data, field_name, TicketSelection)
    ranges = []
    for number, each in enumerate(read.list_of("ranges")):
        if not isinstance(each, Sequence) or isinstance(each, str) or len(each) != 2:
            raise read.refuse(f"ranges[{number}]", "expected the first and the last partition", "Write [first, last].")
        ranges.append((read.text_in(each[0], f"ranges[{number}][0]"), read.text_in(each[1], f"ranges[{number}][1]")))
    missing_max = read.get("missing_max", MISSING_MAX_DEFAULT)
    if isinstance(missing_max, bool) or not isinstance(missing_max, int) or missing_max < 1:
        raise read.refuse("missing_max", f"expected a number from 1 on, found {missing_max!r:.80}", "Correct it.")
    return TicketSelection(
        datasets=read.texts("datasets"),
        partitions=read.texts("partitions"),
        ranges=tuple(ranges),
        mode=read.word("mode", Mode, Mode.AUTO),
        missing_max=missing_max,
        begun_by=read.time_or_none("begun_by"),
    )


def job_ticket_to_json(ticket: JobTicket) -> dict[str, object]:
    return {
        "uri": ticket.uri,
        "version": ticket.version,
        "description": ticket.description,
        "template_uri": ticket.template_uri,
        "capability": ticket.capability,
        "shape": ticket.shape.value,
        "job": dict(ticket.job),
    }


def job_ticket_from_json(data: object, field_name: str = "ticket") -> JobTicket:
    """The same, back. RejectedError names the field. What a job's options mean is checked by whoever runs it."""
    read = _Fields(data, field_name, JobTicket)
    uri = read.text("uri")
    if not is_job_uri(uri):
        hint = "Write gobblin-job:/<group>/<flow>/<job>, each name of at most 128 characters."
        raise read.refuse("uri", f"expected the URI of a job, found {uri!a:.200}", hint)
    job = read.get("job", None)
    if not isinstance(job, Mapping):
        raise read.refuse("job", "expected a job's options", "Write them as an object.")
    name = job.get("job")
    if not isinstance(name, str) or not name:
        raise read.refuse("job.job", "expected the job's name", "Write it.")
    require_plain_json(job, field=read.name_of("job"))
    return JobTicket(
        uri=uri,
        version=read.text("version"),
        capability=read.text("capability"),
        job=job,
        shape=read.word("shape", TicketShape, None),
        description=read.text("description", ""),
        template_uri=read.text_or_none("template_uri"),
    )


def question_to_json(question: ProbeQuestion) -> dict[str, object]:
    return {
        "kind": question.kind.value,
        "asked_by": question.asked_by,
        "source": None if question.source is None else dict(question.source),
        "root": question.root,
        "names": list(question.names),
    }


def question_from_json(data: object, field_name: str = "question") -> ProbeQuestion:
    """The same, back. RejectedError names the field."""
    read = _Fields(data, field_name, ProbeQuestion)
    kind, source, root = read.word("kind", ProbeKind, None), read.get("source", None), read.text_or_none("root")
    has_source = kind in (ProbeKind.TABLES, ProbeKind.COLUMNS, ProbeKind.TOPICS)
    if has_source != isinstance(source, Mapping):
        hint = "Write them as an object." if has_source else "Leave it out."
        raise read.refuse("source", f"{kind} needs {'a' if has_source else 'no'} source's options", hint)
    require_plain_json(source, field=read.name_of("source"))
    if (kind is ProbeKind.PATHS) != (root is not None):
        raise read.refuse("root", f"{kind} needs {'a' if kind is ProbeKind.PATHS else 'no'} root", "Correct it.")
    names = read.texts("names")
    if kind is ProbeKind.COLUMNS and not names:
        raise read.refuse("names", "expected a table, found none", "Name it.")
    return ProbeQuestion(kind, read.text("asked_by", ""), source, root, names)


def sent_ticket_to_json(sent: SentTicket) -> dict[str, object]:
    # Tickets without these are as they were before there were any, and so are their digests.
    asked: dict[str, object] = {} if sent.question is None else {"question": question_to_json(sent.question)}
    if sent.earlier:
        asked["earlier"] = [str(each) for each in sent.earlier]
    if sent.expires_after_s is not None:
        asked["expires_after_s"] = sent.expires_after_s
    if sent.asked_by:
        asked["asked_by"] = sent.asked_by
    return {
        "ticket_id": str(sent.ticket_id),
        "verb": sent.verb.value,
        "executor": sent.executor,
        "ticket": None if sent.ticket is None else job_ticket_to_json(sent.ticket),
        "selection": selection_to_json(sent.selection),
        "cancels": None if sent.cancels is None else str(sent.cancels),
        "log_id": None if sent.log_id is None else str(sent.log_id),
        **asked,
    }


def sent_ticket_from_json(data: object) -> SentTicket:
    """The same, back. RejectedError names the field."""
    read = _Fields(data, "", SentTicket)
    verb = read.word("verb", TicketVerb, None)
    executor = require_executor_name(read.text("executor"), field=read.name_of("executor"))
    ticket, cancels, log_id = read.get("ticket", None), read.uuid_or_none("cancels"), read.uuid_or_none("log_id")
    ticket_id = read.uuid_or_none("ticket_id")
    if ticket_id is None:
        raise read.refuse("ticket_id", "expected an id, found none", "Make one: a UUID.")
    asked = read.get("question", None)
    question = None if asked is None else question_from_json(asked)
    if (verb is TicketVerb.PROBE) != (question is not None):
        raise read.refuse("question", f"{verb} has {'a' if question is None else 'no'} question", "Correct it.")
    is_cancel = verb is TicketVerb.CANCEL
    if is_cancel != (cancels is not None):
        said = "CANCEL names the ticket that is to end" if is_cancel else f"{verb} cancels nothing"
        raise read.refuse("cancels", said, "Write it." if is_cancel else "Leave it out.")
    has_job = not is_cancel if question is None else question.kind is ProbeKind.DRY_RUN
    if has_job != (ticket is not None):
        raise read.refuse("ticket", f"{verb} has {'a' if has_job else 'no'} job", "Correct it.")
    parsed = None if ticket is None else job_ticket_from_json(ticket)
    if parsed is not None:
        _require_shape(read, verb, parsed)
    return SentTicket(
        ticket_id=TicketId(ticket_id),
        verb=verb,
        executor=executor,
        ticket=parsed,
        selection=selection_from_json(read.get("selection", {})),
        cancels=None if cancels is None else TicketId(cancels),
        log_id=None if log_id is None else LogId(log_id),
        question=question,
        earlier=tuple(TicketId(read.uuid_in(each, "earlier")) for each in read.list_of("earlier")),
        expires_after_s=_read_expiry(read),
        asked_by=read.text("asked_by", ""),
    )


def _read_expiry(read: "_Fields") -> float | None:
    found = read.get("expires_after_s", None)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= _EXPIRY_S_MAX:
        said = f"expected seconds from 0 to {_EXPIRY_S_MAX:,}, found {found!r:.80}"
        raise read.refuse("expires_after_s", said, "Correct it, or leave it out.")
    # As it was written: the digest is of that.
    return found


def require_plain_json(data: object, *, field: str) -> None:
    """RejectedError for what a log can't keep as JSON, or not look into: NaN, Infinity, NUL, and what is no Unicode."""
    try:
        written = _canonical(data)
    except (ValueError, TypeError, RecursionError):
        raise RejectedError(
            "expected plain JSON values, without NaN or Infinity", field=field, hint="Correct it."
        ) from None
    if _NUL.search(written) is not None:
        raise RejectedError("expected no NUL, in names or values", field=field, hint="Take them out.")


def require_executor_name(name: str, *, field: str) -> str:
    """The name. RejectedError if no executor can be called so."""
    if _EXECUTOR_NAME.fullmatch(name) is None:
        raise RejectedError(
            f"expected an executor's name, found {name!a:.200}",
            field=field,
            hint="Use at most 128 letters, digits and . _ -, and begin with a letter or digit.",
        )
    return name


def _require_shape(read: "_Fields", verb: TicketVerb, ticket: JobTicket) -> None:
    if ticket.shape is TicketShape.RUN and verb not in (TicketVerb.ADD, TicketVerb.PROBE):
        raise read.refuse("verb", f"{verb} is for workers, and {ticket.uri} is a run", "Send ADD, or CANCEL.")
    if ticket.shape is TicketShape.WORKER and verb is TicketVerb.PROBE:
        raise read.refuse("verb", f"{ticket.uri} is a worker, which no dry run shows", "Send ADD.")


class _Fields:
    """The fields of an object that came as JSON. ``name``: where it stands; ``kind``: the dataclass that has them."""

    def __init__(self, data: object, name: str, kind: type[Any]) -> None:
        self._name = name
        if not isinstance(data, Mapping):
            raise RejectedError(f"expected an object, found {type(data).__name__}", field=name or "ticket")
        self._data = data
        known = list(kind.__dataclass_fields__)
        unknown = sorted(str(each) for each in data if each not in known)
        if unknown:
            raise self.refuse(unknown[0][:80], "is not known here", f"Known are: {', '.join(known)}.")

    def name_of(self, name: str) -> str:
        return f"{self._name}.{name}" if self._name else name

    def refuse(self, name: str, message: str, hint: str) -> RejectedError:
        return RejectedError(message, field=self.name_of(name), hint=hint)

    def get(self, name: str, default: object) -> Any:
        return self._data.get(name, default)

    def text(self, name: str, default: str | None = None) -> str:
        value = self._data.get(name, default)
        if default is None and not value:
            raise self.refuse(name, "expected a text, found none", "Write it.")
        return self.text_in(value, name)

    def text_or_none(self, name: str) -> str | None:
        return None if self._data.get(name) is None else self.text(name)

    def text_in(self, value: object, name: str) -> str:
        if not isinstance(value, str):
            raise self.refuse(name, f"expected a text, found {type(value).__name__}", "Write it in quotes.")
        if len(value) > _TEXT_CHARACTERS_MAX:
            raise self.refuse(
                name, f"expected at most {_TEXT_CHARACTERS_MAX} characters, found {len(value)}", "Cut it."
            )
        if any((each < " " and each not in "\n\t") or "\ud800" <= each <= "\udfff" for each in value):
            raise self.refuse(name, "expected no control characters", "Take them out.")
        return value

    def list_of(self, name: str) -> Sequence[object]:
        value = self._data.get(name, ())
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise self.refuse(name, f"expected a list, found {type(value).__name__}", "Write it in brackets.")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(self.text_in(each, f"{name}[{number}]") for number, each in enumerate(self.list_of(name)))

    def word(self, name: str, kind: type[_Word], default: _Word | None) -> _Word:
        value = self._data.get(name, default)
        try:
            return kind(value)
        except ValueError:
            expected = ", ".join(each.value for each in kind)
            raise self.refuse(name, f"expected one of {expected}; found {value!r:.80}", "Correct it.") from None

    def time_or_none(self, name: str) -> dt.datetime | None:
        value = self.text_or_none(name)
        if value is None:
            return None
        try:
            found = dt.datetime.fromisoformat(value)
        except ValueError:
            found = None
        if found is None or found.tzinfo is None:
            raise self.refuse(name, f"expected a time with its zone, found {value!a:.80}", "Correct it.")
        return found.astimezone(dt.UTC)

    def uuid_or_none(self, name: str) -> uuid.UUID | None:
        value = self._data.get(name)
        return None if value is None else self.uuid_in(value, name)

    def uuid_in(self, value: Any, name: str) -> uuid.UUID:
        try:
            return uuid.UUID(value)
        except (ValueError, AttributeError, TypeError):
            raise self.refuse(name, f"expected a UUID, found {value!r:.80}", "Correct it.") from None


def _canonical(data: object) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _digest(data: object) -> bytes:
    return hashlib.sha256(_canonical(data)).digest()
