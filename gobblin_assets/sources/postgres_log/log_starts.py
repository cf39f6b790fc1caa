"""The decision whether, and from where on, a table's change log can be followed: pure, from what the server says.

A table's first vnode is ``public.orders:1``; the number is that of its copy. At position 0 a vnode has no copy yet. At
positions below any place of a log it has a part of one: the position counts the publications of ranges. The dataset's
facts list the transactions that the copy saw, so that a reader of the log leaves these out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.model.state import DatasetState
from gobblin_assets.rows.joined_columns import JoinedColumn, parse_joined, write_joined
from gobblin_assets.sources.postgres_log.copy_ranges import (
    PartialCopy,
    SeenRanges,
    parse_partial,
    parse_ranges,
    parse_seen,
    say_progress,
    single_range,
)
from gobblin_assets.sources.postgres_log.pgoutput import write_lsn
from gobblin_assets.sources.postgres_log.server_state import (
    LogServerState,
    PublishedTable,
    SlotState,
    require_own_reader,
)
from gobblin_assets.sources.postgres_log.table_terms import (
    TableTerms,
    TermsLook,
    find_break,
    read_terms,
    take_over,
    write_terms,
)

LOG_FACT: Final = "postgres_log"
"""The dataset's fact, a mapping: see ``write_facts``."""

TO_COPY: Final = 0
"""The position of a vnode without a copy."""

PLACE_MIN: Final = 1 << 20
"""A log begins no earlier: its first segment, of 1 MiB at least, is left out."""

_PARTIAL: Final = "copying"


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The place of a log: server, slot and publication. ``field``: of the job's source."""

    slot: str
    publication: str
    system_id: str
    timeline: int


@dataclass(frozen=True, slots=True)
class StartDecision:
    """The place where a reader of the slot begins with one table, and what the dataset records of it.

    ``watermark`` None: nothing of the copy is recorded. ``key`` None: only all columns tell rows apart. ``seen``: what
    its copy has, if it has one; ``partial``: what there is of a copy that is not whole. ``kept``: the dataset's fact,
    as it stays while a copy is made. ``whole``: the newest copy that is whole. ``terms``: what counts of the table,
    None for messages. ``is_adopted``: the dataset did not know its terms yet.
    """

    copy: int
    watermark: int | None
    key: tuple[str, ...] | None
    seen: SeenRanges | None
    facts: Mapping[str, object]
    kept: Mapping[str, object]
    whole: int | None
    partial: PartialCopy | None = None
    terms: TableTerms | None = None
    is_adopted: bool = False


@dataclass(frozen=True, slots=True)
class TableStart:
    """The start of one table, or of the messages of one prefix (``table`` None), for a reader of the slot.

    ``range_rows``: of a copy in ranges. ``columns``: of the table as it was published last, None if it was not;
    ``joined``: those of them that came behind the copy.
    """

    urn: str
    vnode: str
    table: PublishedTable | None
    prefix: str | None
    casts: Mapping[str, str]
    decided: StartDecision
    position: int
    place: LogPlace
    is_copied_first: bool
    range_rows: int
    columns: frozenset[str] | None = None
    joined: tuple[JoinedColumn, ...] = ()


def vnode_of(name: str, copy: int) -> str:
    """``name``: a table's, or ``name_messages``."""
    return f"{name}:{copy}"


def name_messages(prefix: str) -> str:
    """A table's name has its schema in front, and so is never such a name."""
    return f"message:{prefix}"


def copy_of(vnode: str) -> int:
    """CorruptionError for a vnode that is none of a change log."""
    number = vnode.rpartition(":")[2]
    if not number.isdecimal():
        raise CorruptionError(f"{vnode!r} is no vnode of a change log", vnode=vnode)
    return int(number)


def find_last_copy(name: str, state: DatasetState) -> int | None:
    """The number of the newest copy that was begun. ``name`` as for ``vnode_of``."""
    prefix = f"{name}:"
    numbers = [copy_of(vnode) for (vnode, _partition) in state.keys if vnode.startswith(prefix)]
    return max(numbers, default=None)


def write_facts(
    place: LogPlace, copy: int, *, key: tuple[str, ...] | None, seen: SeenRanges | None
) -> Mapping[str, object]:
    """What the dataset keeps. ``key`` None: rows are told apart by all of their columns."""
    fact: dict[str, object] = {
        "system_id": place.system_id,
        "timeline": place.timeline,
        "slot": place.slot,
        "copy": copy,
        "key": None if key is None else list(key),
    }
    if seen is not None:
        fact |= {"seen": seen.seen[0].write()} if seen.column is None else {"ranges": seen.write()}
    return {LOG_FACT: fact}


def write_partial_facts(start: TableStart, position: int, partial: PartialCopy) -> Mapping[str, object]:
    """What the dataset keeps while a copy is made: what it kept before, and how far the copy is.

    ``position``: of the publication that ends here.
    """
    place = start.place
    said = {
        "system_id": place.system_id,
        "timeline": place.timeline,
        "slot": place.slot,
        "copy": start.decided.copy,
        "whole": start.decided.whole,
        "position": position,
        **partial.write(),
    }
    return {LOG_FACT: {**start.decided.kept, _PARTIAL: said}}


def find_progress(state: DatasetState) -> str | None:
    """How far a copy is that is not whole; for people."""
    found = _find_partial(state)
    if found is None:
        return None
    ranges = parse_partial(found).ranges
    return say_progress(ranges.seen, ranges.count)


def find_copied_key(state: DatasetState) -> tuple[str, ...]:
    """The columns by which the server told the table's rows apart when it was copied; (): by all, or not known."""
    fact = state.source_facts.get(LOG_FACT)
    key = fact.get("key") if isinstance(fact, Mapping) else None
    return tuple(str(each) for each in key) if isinstance(key, list) else ()


def _find_partial(state: DatasetState) -> Mapping[str, Any] | None:
    fact = state.source_facts.get(LOG_FACT)
    found = fact.get(_PARTIAL) if isinstance(fact, Mapping) else None
    return found if isinstance(found, Mapping) else None


def _find_whole_copy(name: str, state: DatasetState) -> int | None:
    numbers = [
        copy_of(vnode)
        for (vnode, _partition), key in state.keys.items()
        if vnode.startswith(f"{name}:")
        and key.watermark is not None
        and isinstance(key.watermark.value, int)
        and key.watermark.value >= PLACE_MIN
    ]
    return max(numbers, default=None)


def decide_start(
    urn: str,
    name: str,
    table: PublishedTable | None,
    state: DatasetState,
    server: LogServerState,
    slot: SlotState | None,
    place: LogPlace,
) -> StartDecision:
    """Where the log of a table goes on, or of messages (``table`` None). ``name`` as for ``vnode_of``.

    RejectedError if the log or the table is another one than before, or changes are missing in it: a new copy mends it.
    """
    key = None if table is None else table.key or None
    terms = None if table is None else table.look.terms
    copy = find_last_copy(name, state) or 1
    watermark = state.find_watermark(vnode_of(name, copy), "")
    position = None if watermark is None else watermark.value
    if position is not None and not isinstance(position, int):
        raise CorruptionError(f"{urn}: its position is {position!r}")
    facts = state.source_facts.get(LOG_FACT)
    facts = facts if isinstance(facts, Mapping) else {}
    kept = {name: each for name, each in facts.items() if name != _PARTIAL}
    whole = _find_whole_copy(name, state)
    # Of the copy that is whole, until another one is.
    joined = write_joined(parse_joined(state.source_facts))
    if position is None or position == TO_COPY:
        require_slot_is_ours(slot, place.slot, state.job)
        new = {**write_facts(place, copy, key=key, seen=None), **joined}
        return StartDecision(copy, position, key, None, new, kept, whole, terms=terms)
    if position < PLACE_MIN:
        said = _find_partial(state)
        if said is None or (said.get("copy"), said.get("position")) != (copy, position):
            raise CorruptionError(f"{urn} has {position} publications of its copy {copy}, and no fact of it")
        partial = parse_partial(said)
        _require_same_log(state, partial.place, said, server, slot, place)
        return StartDecision(copy, position, key, None, {LOG_FACT: facts, **joined}, kept, whole, partial, terms)
    if not facts:
        raise CorruptionError(f"{urn} has the position {write_lsn(position)} and no fact {LOG_FACT}")
    _require_same_log(state, position, facts, server, slot, place)
    was, seen, ranges = facts.get("key"), facts.get("seen"), facts.get("ranges")
    found = None if ranges is None else parse_ranges(ranges)
    known = read_terms(state.source_facts)
    if table is not None:
        terms = _require_same_table(urn, known, table.look, state, place)
    return StartDecision(
        copy,
        position,
        None if was is None else tuple(map(str, was)),
        found if seen is None else single_range(parse_seen(str(seen))),
        {LOG_FACT: facts, **joined, **write_terms(terms)},
        kept,
        whole,
        terms=terms,
        is_adopted=table is not None and known is None,
    )


def decide_copy(urn: str, name: str, state: DatasetState, slot: SlotState | None, place: LogPlace) -> tuple[int, bool]:
    """The number of the next copy, and whether it was begun already and is not made yet. ``name`` as for ``vnode_of``.

    RejectedError if no copy was ever begun, or the slot can't be followed behind the copy.
    """
    last = find_last_copy(name, state)
    if last is None:
        raise RejectedError(
            f"{urn} has no copy yet: the workers make the first one", field="--dataset", hint="Leave it out.", urn=urn
        )
    require_slot_is_ours(slot, place.slot, state.job)
    watermark = state.find_watermark(vnode_of(name, last), "")
    if watermark is None:
        return last, False
    return (last, True) if watermark.value == TO_COPY else (last + 1, False)


def _require_same_log(
    state: DatasetState,
    position: int,
    facts: Mapping[str, Any],
    server: LogServerState,
    slot: SlotState | None,
    place: LogPlace,
) -> None:
    urn = state.urn
    if str(facts.get("system_id")) != server.system_id:
        raise _refuse_all(f"the database is another one than before: its system id is {server.system_id}")
    if facts.get("timeline") != server.timeline:
        raise _refuse_all(
            f"the server went over to timeline {server.timeline}, from {facts.get('timeline')}: changes that were "
            "published may not have reached it",
        )
    if slot is None:
        raise _refuse_all(f"the replication slot {place.slot} is gone")
    require_slot_is_ours(slot, place.slot, state.job)
    if slot.wal_status == "lost" or slot.confirmed is None:
        raise _refuse_all(f"the server gave up the slot {place.slot}: {slot.reason or 'its log is removed'}")
    if slot.confirmed > position:
        raise RejectedError(
            f"{urn}: the slot {place.slot} is confirmed up to {write_lsn(slot.confirmed)}, and published is only what "
            f"comes before {write_lsn(position)}: somebody else has read it, or it was made anew",
            field="source.slot",
            hint=f"Copy the table again, behind what is published: gobblin-assets sink recopy JOB --dataset {urn}.",
            urn=urn,
        )


def _require_same_table(
    urn: str, was: TableTerms | None, now: TermsLook, state: DatasetState, place: LogPlace
) -> TableTerms:
    """The terms from now on. ``was`` None: nobody has kept them yet, and nothing is known of the time before."""
    if was is None:
        is_met = now.columns <= frozenset(state.source_columns or ())
        return now.terms if is_met else replace(now.terms, width=0, file=None)
    if was.publication != now.terms.publication:
        raise _refuse_all(
            f"the publication {place.publication} is another one, or its options were altered, since the tables were "
            "copied: changes may have been left out meanwhile"
        )
    if (broken := find_break(was, now)) is not None:
        raise RejectedError(
            f"{now.name} {broken}",
            field=f"datasets[{urn}]",
            hint=f"Copy the table again, behind what is published: gobblin-assets sink recopy JOB --dataset {urn}.",
            urn=urn,
        )
    return take_over(was, now, is_met=False)


def require_slot_is_ours(slot: SlotState | None, name: str, job: str) -> None:
    """RejectedError for a slot of another kind, database, or reader; None: there is none."""
    if slot is None:
        return
    if slot.plugin != "pgoutput":
        raise RejectedError(
            f"the slot {name} is one of {slot.plugin or 'physical replication'}; expected pgoutput",
            field="source.slot",
            hint="Name another slot; it is made if there is none.",
        )
    if not slot.is_here:
        raise RejectedError(
            f"the slot {name} is of the database {slot.database}, and slots of a server have one name each",
            field="source.slot",
            hint="Name another slot; it is made if there is none.",
        )
    require_own_reader(slot, name, job)


def _refuse_all(why: str) -> RejectedError:
    """What all tables of the slot have in common; it names none of them, so that it is said once."""
    return RejectedError(
        why,
        field="source.slot",
        hint="Copy the tables again, behind what is published: gobblin-assets sink recopy JOB --all.",
    )
