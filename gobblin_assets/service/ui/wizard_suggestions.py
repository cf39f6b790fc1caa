"""Suggestions for a form: what there is at the node that the flow begins at, and proposals made of it.

Of datasets the service knows itself what its flows have published. All else an executor says: the form has the ids of
the questions that were asked for it. Their answers are in the executor's log, so that nothing is kept here between two
requests.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gobblin_assets.errors import GobblinError
from gobblin_assets.model.job_ticket import ProbeKind, TicketId
from gobblin_assets.service.access import User
from gobblin_assets.service.api.problems import problem_of
from gobblin_assets.service.api.request_parts import ServedParts
from gobblin_assets.service.guarded_jobs import PAGE_DATASETS_MAX, DatasetCondition, PublishedDataset
from gobblin_assets.service.probes import TABLES_ASKED_MAX, Probe, ProbeState, list_answers
from gobblin_assets.service.topology import DataNode, NodeKind
from gobblin_assets.service.ui.forms import SentForm
from gobblin_assets.service.ui.wizard_fields import is_table

SHOWN_MAX: Final = 300
NAMES_WAIT_S: Final = 3.0
COLUMNS_WAIT_S: Final = 9.0
PROBES_MAX: Final = 30
"""Of one form."""

_DATASETS: Final = "datasets"
_WORDS_OF: Final[Mapping[NodeKind, Sequence[str]]] = {
    NodeKind.DATABASE: ("tables",),
    NodeKind.CHANGE_LOG: ("tables",),
    NodeKind.CLUSTER: ("topics",),
    NodeKind.FILES: ("paths", _DATASETS),
}
_TITLES: Final[Mapping[str, str]] = {
    "tables": "Tables",
    "topics": "Topics",
    "paths": "Directories",
    _DATASETS: "Datasets",
}
_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class SuggestedList:
    """The list of a form that is filled by choosing. ``member``: the field of its rows that is chosen.

    ``word``: tables, topics, paths or datasets. ``fields``: the schemas of a row's fields.
    """

    name: str
    member: str
    word: str
    fields: Mapping[str, Any]

    @property
    def divisions(self) -> Sequence[str]:
        """The partitions that rows may have."""
        return next((each["enum"] for each in self.fields.values() if each.get("x-suggest") == "partitions"), ())


@dataclass(slots=True)
class Suggestions:
    """What is known for a form. ``node``: where the flow begins; None: it is not chosen, or has nothing to suggest.

    ``published``: datasets. ``names``: the question for tables, topics or directories; ``columns``: what was said of
    tables, by their names.
    ``refusal``: why nobody could be asked. ``notes``: sentences on what is not proposed. ``is_late``: proposals come.
    ``division``: the partitions that were chosen for what was taken last.
    """

    into: SuggestedList | None
    node: DataNode | None = None
    published: Sequence[PublishedDataset] = ()
    names: Probe | None = None
    probes: list[Probe] = field(default_factory=list)
    columns: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    refusal: str = ""
    notes: list[str] = field(default_factory=list)
    is_late: bool = False
    division: str = ""

    @property
    def title(self) -> str:
        return "" if self.into is None else _TITLES[self.into.word]

    @property
    def shown(self) -> Sequence[str]:
        """The names to choose from."""
        if self.published:
            return list(dict.fromkeys(each.line.urn for each in self.published))
        if self.into is None or self.names is None or self.names.answer is None:
            return ()
        found: Sequence[str] = self.names.answer.get(self.into.word, ())
        return found[:SHOWN_MAX]

    @property
    def left_out(self) -> int:
        if not self.shown or self.names is None or self.names.answer is None or self.into is None:
            return 0
        word = self.into.word
        whole: int = self.names.answer["cut"].get(word, len(self.names.answer[word]))
        return whole - len(self.shown)

    @property
    def is_waiting(self) -> bool:
        return self.names is not None and self.names.state is ProbeState.WAITING

    def list_choices(self, word: str, table: str) -> Sequence[str]:
        """Values for a field that suggests the word, in a row of this table."""
        answer = self.names.answer if self.names is not None and self.names.answer is not None else _NOTHING
        match word:
            case "tables" | "topics" | "paths" | "datasets":
                return self.shown
            case "jobs":
                return [each.job.job_name for each in self.published if each.line.urn == table]
            case "publications":
                return [each["publication"] for each in answer.get("publications", ())]
            case "watermark_column":
                found: Sequence[str] = self.columns.get(table, _NOTHING).get("watermark_columns", ())
                return found
            case _:
                return ()


def find_list(parameters: Mapping[str, Any]) -> SuggestedList | None:
    """The first list of a form whose rows have a field to choose."""
    for name, schema in parameters["properties"].items():
        if is_table(schema):
            fields: Mapping[str, Any] = schema["items"].get("properties", {})
            for member, each in fields.items():
                if each.get("x-suggest") in _TITLES:
                    return SuggestedList(name, member, each["x-suggest"], fields)
    return None


def recall_suggestions(
    parts: ServedParts, user: User, parameters: Mapping[str, Any], node: DataNode | None, form: SentForm | None
) -> Suggestions:
    """What is known by the questions that the form names, if they were asked of this node."""
    found = Suggestions(find_list(parameters))
    if found.into is None or node is None or found.into.word not in _WORDS_OF.get(node.kind, ()):
        return found
    found.node = node
    if found.into.word == _DATASETS:
        _list_published(parts, user, found, node)
    elif form is not None and form.text("probe_node") == node.name:
        for text in form.texts("probe")[:PROBES_MAX]:
            _recall(parts, user, found, text)
    return found


def ask_names(parts: ServedParts, user: User, found: Suggestions) -> None:
    """Ask which tables, topics or directories the node has, unless it was asked and has not failed."""
    if found.node is None or found.into is None or found.into.word == _DATASETS:
        return
    known = found.names
    try:
        if known is None or known.state is ProbeState.FAILED:
            names = parts.probes.suggest(user, found.node.name, wait_s=NAMES_WAIT_S)
        else:
            names = parts.probes.get(user, known.probe_id, wait_s=NAMES_WAIT_S)
    except GobblinError as error:
        found.refusal = _say(error)
        return
    found.names = names
    found.probes = [names, *(each for each in found.probes if each is not known)]


def take_names(
    parts: ServedParts, user: User, found: Suggestions, rows: Sequence[Mapping[str, Any]], form: SentForm
) -> list[dict[str, Any]]:
    """The rows with those that were chosen, and with proposals for what is empty in them."""
    if found.into is None:
        return [dict(row) for row in rows]
    member = found.into.member
    taken = {row.get(member) for row in rows}
    added = [{member: name} for name in form.texts("pick") if name not in taken]
    whole = [*map(dict, rows), *added]
    known = set(found.columns)
    if found.node is not None and found.node.kind is NodeKind.DATABASE:
        _ask_columns(parts, user, found, [str(row[member]) for row in whole if row.get(member)])
    found.division = division = form.text("pick_partitions")
    # The answer may come behind the request that took the row, which then has nothing but its name.
    return [_propose(row, found, "" if row.get(member) in known and row not in added else division) for row in whole]


def propose_publication(found: Suggestions, values: dict[str, Any], parameters: Mapping[str, Any]) -> None:
    """Fill in the publication, if there is one alone."""
    for name, schema in parameters["properties"].items():
        if schema.get("x-suggest") == "publications" and not values.get(name):
            offered = found.list_choices("publications", "")
            if len(offered) == 1:
                values[name] = offered[0]


def _list_published(parts: ServedParts, user: User, found: Suggestions, node: DataNode) -> None:
    page = parts.jobs.list_datasets(user, node=node.name)
    found.published = [
        each
        for each in page.datasets
        # Not what copies publish, whose files are those of a tree.
        if each.line.rows is not None and each.condition is not DatasetCondition.EMPTY
    ]
    found.notes += [
        f"What is published through the log {each.log or 'of the service'} is not shown." for each in page.away
    ]
    if page.after is not None:
        found.notes.append(f"These are the first {PAGE_DATASETS_MAX}: write the names of others below.")
    if not found.published and page.after is None:
        found.refusal = f"Flows that you may read have published nothing in {node.name} yet."


def _recall(parts: ServedParts, user: User, found: Suggestions, text: str) -> None:
    try:
        probe = parts.probes.get(user, TicketId(uuid.UUID(text)))
    except (GobblinError, ValueError):
        # Nobody has such an answer any more: it is asked for again.
        return
    if probe.kind is ProbeKind.COLUMNS:
        _keep_columns(found, [probe])
    else:
        found.names = probe
    found.probes.append(probe)


def _ask_columns(parts: ServedParts, user: User, found: Suggestions, tables: Sequence[str]) -> None:
    """Ask for those that nothing is known of, all at once, and wait for the answer.

    A question that was not answered yet is waited for, and none is asked.
    """
    node = "" if found.node is None else found.node.name
    wanted = [each for each in dict.fromkeys(tables) if each not in found.columns][:TABLES_ASKED_MAX]
    waiting = [each for each in found.probes if each.kind is ProbeKind.COLUMNS and each.state is ProbeState.WAITING]
    try:
        if waiting:
            found.probes = [each for each in found.probes if each not in waiting]
            probe = parts.probes.get(user, waiting[0].probe_id, wait_s=COLUMNS_WAIT_S)
        elif wanted:
            probe = parts.probes.suggest(user, node, tables=wanted, wait_s=COLUMNS_WAIT_S)
        else:
            return
    except GobblinError as error:
        found.notes.append(_say(error))
        return
    if probe.state is not ProbeState.FAILED:
        found.probes.append(probe)
    if probe.state is not ProbeState.ANSWERED:
        found.notes.append(f"Nothing is proposed yet: {probe.message}. {probe.hint}".strip())
    found.is_late = probe.state is ProbeState.WAITING
    _keep_columns(found, [probe])


def _keep_columns(found: Suggestions, probes: Sequence[Probe]) -> None:
    for answer in list_answers(probes, ProbeKind.COLUMNS):
        for table in answer["tables"]:
            if table["error"]:
                found.notes.append(f"Nothing is proposed for {table['table']}: {table['error']}.")
            else:
                found.columns[table["table"]] = table


def _propose(row: Mapping[str, Any], found: Suggestions, division: str) -> dict[str, Any]:
    """The row with values for what is empty in it. ``division``: the partitions that were chosen for it."""
    if found.into is None:
        return dict(row)
    if found.into.word == _DATASETS:
        jobs = found.list_choices("jobs", str(row.get(found.into.member)))
        return _fill_in(row, found.into, {"jobs": jobs[0]} if len(jobs) == 1 else {})
    said = found.columns.get(str(row.get(found.into.member)))
    if said is None:
        return dict(row)
    if division and not said["partition_columns"]:
        found.notes.append(f"{said['table']} has no column of time: it is not divided.")
    return _fill_in(row, found.into, dict(_list_proposals(said, division or str(row.get("partitions") or ""))))


def _fill_in(row: Mapping[str, Any], into: SuggestedList, proposed: Mapping[str, Any]) -> dict[str, Any]:
    """``proposed``: by the words of what fields suggest."""
    fields = {name: proposed.get(str(each.get("x-suggest"))) for name, each in into.fields.items()}
    return {**{name: value for name, value in fields.items() if value}, **row}


def _list_proposals(said: Mapping[str, Any], division: str) -> Iterator[tuple[str, Any]]:
    """Proposals of a table, by the words of what fields suggest."""
    yield "primary_key", said["primary_key"]
    yield "columns", said["readable"]
    by_time: Sequence[str] = said["partition_columns"]
    if division and by_time:
        yield "watermark_column", by_time[0]
        yield "partitions", division
        yield "start", said["first"].get(by_time[0], "")[: len("2026-01-31")]
    else:
        yield "watermark_column", said["watermark_column"]


def _say(error: GobblinError) -> str:
    problem = problem_of(error)
    return f"{problem.detail}. {problem.hint}".strip()
