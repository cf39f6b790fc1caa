"""Decides for which datasets of a log to ask for a run, from new records, work under way and earlier requests. Pure.

A run may fail and leave new records unread. So each request is remembered with a mark, which changes as soon as a run
gets further. Under the same mark each try waits longer than the one before, and other datasets don't wait. Dagster
never runs a run key twice, even if the run failed, so a key is made of the marks and the numbers of the tries.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from gobblin_assets.dagster.sensors import decide_try_wait_s
from gobblin_assets.errors import GobblinError, RetryableError
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.sources.connection import LogNews
from gobblin_assets.spec.source_spec import NewDataSpec

_REFUSED_MARK: Final = "refused"
_KEY_DIGITS: Final = 32
_NAMED_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """The new positions of one dataset. ``begins``: a run is due even if ``count``, in positions, is 0."""

    count: int
    begins: bool
    mark: str


class Asked(NamedTuple):
    """Requests under ``mark``: how often, and when last, or when the dataset was last seen at work (Unix time, s)."""

    mark: str
    tries: int
    at: float


@dataclass(frozen=True, slots=True)
class Memory:
    """The sensor's cursor. ``waiting``: since when a dataset has had new records, but too few."""

    asked: Mapping[DatasetUrn, Asked] = field(default_factory=dict)
    waiting: Mapping[DatasetUrn, float] = field(default_factory=dict)


@dataclass(slots=True)
class Due:
    """``wanted`` by dataset; the others have new records too, and are left out for now. ``memory``: the new cursor."""

    wanted: dict[DatasetUrn, Asked] = field(default_factory=dict)
    busy: list[DatasetUrn] = field(default_factory=list)
    small: list[DatasetUrn] = field(default_factory=list)
    held: list[DatasetUrn] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)

    @property
    def run_key(self) -> str:
        """A new key for every try, and the same key if the same tick is evaluated again."""
        lines = [f"{urn} {asked.mark} {asked.tries}" for urn, asked in sorted(self.wanted.items())]
        return hashlib.sha256("\n".join(lines).encode("utf-8")).hexdigest()[:_KEY_DIGITS]


_MEMORY: Final = TypeAdapter(Memory)


def read_memory(cursor: str | None) -> Memory:
    """The cursor of the last tick. A cursor that a person typed or cleared only loses the waits of tries."""
    try:
        return _MEMORY.validate_json(cursor) if cursor else Memory()
    except ValidationError:
        return Memory()


def write_memory(memory: Memory) -> str:
    return _MEMORY.dump_json(memory).decode("utf-8")


def find_finding(news: LogNews | GobblinError) -> Finding | None:
    """The new positions; None: the brokers gave no answer. A dataset that planning refuses is due: its run says why."""
    if isinstance(news, RetryableError):
        return None
    if isinstance(news, GobblinError):
        return Finding(0, begins=True, mark=_REFUSED_MARK)
    return Finding(news.count, news.begins, news.mark)


def decide_due(
    findings: Mapping[DatasetUrn, Finding | None],
    busy: Collection[DatasetUrn],
    memory: Memory,
    rules: NewDataSpec,
    *,
    now_s: float,
) -> Due:
    """What to ask for now. ``findings`` has every dataset of the job; None for one that nobody knows about."""
    due = Due()
    asked: dict[DatasetUrn, Asked] = {}
    waiting: dict[DatasetUrn, float] = {}
    for urn, finding in findings.items():
        before, since = memory.asked.get(urn), memory.waiting.get(urn)
        if finding is None:
            asked |= {} if before is None else {urn: before}
            waiting |= {} if since is None else {urn: since}
            continue
        if before is not None and before.mark == finding.mark:
            asked[urn] = before
        if not finding.count and not finding.begins:
            asked.pop(urn, None)
        elif urn in busy:
            due.busy.append(urn)
            # A try ends with its run: only then the wait for the next begins.
            asked |= {urn: asked[urn]._replace(at=now_s)} if urn in asked else {}
        elif _is_too_little(finding, since, rules, now_s):
            due.small.append(urn)
            waiting[urn] = now_s if since is None else since
        elif urn in asked and now_s - asked[urn].at < decide_try_wait_s(asked[urn].tries):
            due.held.append(urn)
        else:
            tries = asked[urn].tries + 1 if urn in asked else 1
            asked[urn] = due.wanted[urn] = Asked(finding.mark, tries, now_s)
    due.memory = Memory(asked, waiting)
    return due


def describe_left_out(due: Due, unanswered: Sequence[DatasetUrn]) -> str:
    """A sentence for each reason; "" when nothing that is new is left out."""
    reasons = (
        (due.busy, "at work or queued already"),
        (due.small, "waiting for more records"),
        (due.held, "waiting until the next try, since the last run got no further"),
        (unanswered, "not answered for by the brokers"),
    )
    return " ".join(f"{len(urns)} {reason}: {name_some(urns)}." for urns, reason in reasons if urns)


def name_some(names: Sequence[str]) -> str:
    """The first of them."""
    return ", ".join(names[:_NAMED_MAX]) + (", …" if len(names) > _NAMED_MAX else "")


def _is_too_little(finding: Finding, since: float | None, rules: NewDataSpec, now_s: float) -> bool:
    if finding.begins or finding.count >= rules.records_min:
        return False
    return rules.wait_s_max is None or since is None or now_s - since < rules.wait_s_max
