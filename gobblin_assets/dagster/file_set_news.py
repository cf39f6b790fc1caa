"""Decides for which file sets to ask for a run, from their marks and from what became of earlier runs. Pure.

A set is due when its mark is another than that of its last good run. A run that failed is asked for again under the
same mark, each time after a longer wait. One set of a dataset is asked for at a time, since a run holds the dataset.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from gobblin_assets.dagster.sensors import decide_try_wait_s
from gobblin_assets.jobs.programs import SetId
from gobblin_assets.model.urn import DatasetUrn

_KEY_DIGITS: Final = 32
_SEPARATOR: Final = "\n"


class RunEnd(StrEnum):
    """What became of a run. FAILED: also of one that is not there."""

    WORKING = "WORKING"
    GOOD = "GOOD"
    FAILED = "FAILED"


class SetNote(NamedTuple):
    """The last run that was asked for under ``mark``, at ``at`` (Unix time, s); no ``run_key`` once it was good."""

    mark: str
    tries: int
    at: float
    run_key: str | None


@dataclass(frozen=True, slots=True)
class SetMemory:
    """The sensor's cursor: a note for each set, and the set that a tick without enough time goes on with."""

    notes: Mapping[str, SetNote] = field(default_factory=dict)
    first: str | None = None


class WantedRun(NamedTuple):
    """A run of Dagster's job ``job``."""

    job: str
    run_key: str
    sets: Sequence[SetId]


class _Chosen(NamedTuple):
    """``salt``: when the last run of the set was asked for, so that a mark that comes back makes a new run key."""

    id: SetId
    mark: str
    tries: int
    salt: float


@dataclass(slots=True)
class DueSets:
    """``wanted``: the sets of each run, all of one job and key. The others are left out for now.

    ``busy`` and ``held`` are due too; those of ``unready`` have no mark.
    """

    wanted: list[WantedRun] = field(default_factory=list)
    busy: list[SetId] = field(default_factory=list)
    held: list[SetId] = field(default_factory=list)
    unready: list[SetId] = field(default_factory=list)
    notes: dict[str, SetNote] = field(default_factory=dict)


_MEMORY: Final = TypeAdapter(SetMemory)


def read_set_memory(cursor: str | None) -> SetMemory:
    """The cursor of the last tick. Without it, each set is due once more."""
    try:
        return _MEMORY.validate_json(cursor) if cursor else SetMemory()
    except ValidationError:
        return SetMemory()


def write_set_memory(memory: SetMemory) -> str:
    return _MEMORY.dump_json(memory).decode("utf-8")


def name_set(each: SetId) -> str:
    """The set's name in a cursor."""
    return f"{each.urn}{_SEPARATOR}{each.key}"


def go_on_with(sets: Sequence[SetId], first: str | None) -> list[SetId]:
    """The same sets, beginning with the one of this name."""
    start = next((number for number, each in enumerate(sets) if name_set(each) == first), 0)
    return [*sets[start:], *sets[:start]]


def decide_sets(
    sets: Sequence[SetId],
    marks: Mapping[SetId, str | None],
    busy: Collection[str],
    memory: SetMemory,
    ends: Mapping[str, RunEnd],
    jobs: Mapping[DatasetUrn, str],
    *,
    now_s: float,
) -> DueSets:
    """What to ask for now. ``marks``: of the sets that were looked at; None: the set is not ready.

    ``busy``: datasets at work. ``ends``: what became of the runs in ``memory``, by run key. ``jobs``: by dataset.
    """
    due = DueSets()
    chosen: dict[tuple[str, str], list[_Chosen]] = {}
    taken = set(busy)
    for each in sets:
        note = _settle(memory.notes.get(name_set(each)), ends)
        if note is not None:
            due.notes[name_set(each)] = note
        mark = marks.get(each)
        if mark is None and each in marks:
            due.unready.append(each)
        is_known = note is not None and note.mark == mark
        if mark is None or (note is not None and is_known and note.run_key is None):
            continue
        if each.urn in taken or (note is not None and note.run_key and ends.get(note.run_key) is RunEnd.WORKING):
            due.busy.append(each)
            continue
        tries = note.tries if note is not None and is_known else 0
        if note is not None and tries and now_s - note.at < decide_try_wait_s(tries):
            due.held.append(each)
            continue
        taken.add(each.urn)
        salt = now_s if note is None else note.at
        chosen.setdefault((jobs[each.urn], each.key), []).append(_Chosen(each, mark, tries + 1, salt))
    for (job, _key), members in chosen.items():
        run_key = _make_run_key(job, members)
        due.wanted.append(WantedRun(job, run_key, [each.id for each in members]))
        due.notes |= {name_set(each.id): SetNote(each.mark, each.tries, now_s, run_key) for each in members}
    return due


def _settle(note: SetNote | None, ends: Mapping[str, RunEnd]) -> SetNote | None:
    """The note, without its run if that was good."""
    if note is None or note.run_key is None or ends.get(note.run_key) is not RunEnd.GOOD:
        return note
    return note._replace(run_key=None)


def _make_run_key(job: str, members: Sequence[_Chosen]) -> str:
    """A new key for every try, and the same if the same tick is evaluated again, but for sets that are seen first."""
    lines = [job, *(f"{name_set(each.id)} {each.mark} {each.tries} {each.salt}" for each in sorted(members))]
    return hashlib.sha256("\n".join(lines).encode("utf-8")).hexdigest()[:_KEY_DIGITS]
