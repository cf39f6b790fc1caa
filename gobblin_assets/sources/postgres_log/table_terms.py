"""The terms under which a table's log has all of its changes: which table it is, and how it is published.

A name says neither: another table may take it, and a table may leave a publication and come back, while rows come that
no log has. So the dataset keeps what the server's catalogue had: numbers that are given once, and versions of its rows.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gobblin_assets.errors import CorruptionError
from gobblin_assets.sources.jdbc.names import TableName

AskServer = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]

_FACT: Final = "table_terms"
"""Under this name, the source keeps them with the dataset."""

_UNDER: Final = " under "

# Whoever is in a publication is so by an entry of its own, of its schema, or of a table that it is a partition of.
# Servers before 15 have no catalogue of a publication's schemas, and pg_depend has the entries of all kinds. Its row of
# a table's schema is written anew when the table moves; pg_inherits' row, when a partition is detached and attached.
# A partition that was made as one has all of its pg_attribute rows from one command; one that was attached has not.
TERMS_QUERY: Final = """
    WITH RECURSIVE published AS (
        SELECT p.oid, format('%%s %%s', p.oid, p.xmin) AS version FROM pg_publication p WHERE p.pubname = %s
    ), wanted AS (
        SELECT c.* FROM pg_class c WHERE c.oid = ANY (%s)
    ), up(oid, relid, links) AS (
        SELECT w.oid, w.oid, '' FROM wanted w
        UNION ALL
        SELECT u.oid, i.inhparent, format('%%s under %%s %%s', u.links, i.inhparent, i.xmin)
          FROM up u JOIN pg_class c ON c.oid = u.relid AND c.relispartition JOIN pg_inherits i ON i.inhrelid = u.relid
    ), entries AS (
        SELECT d.classid, d.objid FROM pg_depend d, published p
         WHERE d.refclassid = 'pg_publication'::regclass AND d.refobjid = p.oid AND d.deptype = 'a'
    ), member(oid, member) AS (
        SELECT DISTINCT u.oid, format('table %%s%%s', e.objid, u.links)
          FROM up u JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = u.relid
          JOIN entries e ON e.classid = d.classid AND e.objid = d.objid
        UNION ALL
        SELECT DISTINCT u.oid, format('schema %%s %%s%%s', e.objid, s.xmin, u.links)
          FROM up u JOIN pg_depend s ON s.classid = 'pg_class'::regclass AND s.objid = u.relid AND s.objsubid = 0
                                    AND s.refclassid = 'pg_namespace'::regclass
          JOIN pg_depend d ON d.refclassid = s.refclassid AND d.refobjid = s.refobjid
          JOIN entries e ON e.classid = d.classid AND e.objid = d.objid
    ), members(oid, list) AS (
        SELECT m.oid, jsonb_agg(m.member) FROM member m GROUP BY m.oid
    ), part(oid, relid, part, is_stranger) AS (
        SELECT w.oid, w.oid, NULL::text, false FROM wanted w WHERE w.relkind = 'p'
        UNION ALL
        SELECT p.oid, c.oid, format('%%s %%s %%s', c.oid, c.relfilenode, i.xmin),
               (c.relkind <> 'p' AND c.relfilenode <> c.oid) OR EXISTS (
                   SELECT FROM pg_attribute a JOIN pg_attribute s ON s.attrelid = a.attrelid AND s.attnum = -1
                    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT (a.xmin = s.xmin AND a.cmin = s.cmin))
          FROM part p JOIN pg_inherits i ON i.inhparent = p.relid JOIN pg_class c ON c.oid = i.inhrelid
    ), parts(oid, list, strangers) AS (
        SELECT p.oid, jsonb_agg(p.part), jsonb_agg(p.part) FILTER (WHERE p.is_stranger)
          FROM part p WHERE p.part IS NOT NULL GROUP BY p.oid
    ), type(oid, typid) AS (
        SELECT a.attrelid, a.atttypid FROM pg_attribute a JOIN wanted w ON w.oid = a.attrelid
         WHERE a.attnum > 0 AND NOT a.attisdropped
        UNION
        SELECT y.oid, x.typid FROM type y JOIN pg_type t ON t.oid = y.typid
         CROSS JOIN LATERAL (VALUES (t.typbasetype), (t.typelem)) x(typid) WHERE x.typid <> 0
    ), labels(oid, list) AS (
        SELECT y.oid, jsonb_object_agg(e.oid::text, e.enumlabel)
          FROM type y JOIN pg_enum e ON e.enumtypid = y.typid GROUP BY y.oid
    ), names(oid, list) AS (
        SELECT a.attrelid, jsonb_agg(a.attname) FROM pg_attribute a JOIN wanted w ON w.oid = a.attrelid
         WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' GROUP BY a.attrelid
    )
    SELECT jsonb_build_object(
        'oid', w.oid::bigint, 'schema', n.nspname, 'table', w.relname, 'file', w.relfilenode::bigint,
        'width', w.relnatts, 'publication', p.version, 'is_secured', row_security_active(w.oid),
        'is_partitioned', w.relkind = 'p', 'names', c.list, 'members', m.list,
        'parts', x.list, 'strangers', x.strangers, 'labels', l.list)
      FROM wanted w JOIN pg_namespace n ON n.oid = w.relnamespace CROSS JOIN published p
      LEFT JOIN names c ON c.oid = w.oid LEFT JOIN members m ON m.oid = w.oid LEFT JOIN parts x ON x.oid = w.oid
      LEFT JOIN labels l ON l.oid = w.oid"""


@dataclass(frozen=True, slots=True)
class TableTerms:
    """The terms of one table: what must stay so for its log to go on.

    ``oid``: the table's. ``publication``: its oid and the version of its row, which has its options.

    ``members``: by which entries the publication has the table. ``row_filter``: a condition in SQL. ``parts``: what a
    table is partitioned into that is published as a whole; a partition that is emptied or written anew becomes another
    one. ``labels``: of enums, by their oids. ``width``: how many columns it ever had, and ``file``: where the server
    kept its rows when it had no more, None: not known.
    """

    oid: int
    publication: str
    members: frozenset[str]
    row_filter: str | None
    parts: frozenset[str]
    labels: Mapping[str, str]
    width: int
    file: int | None

    def write(self) -> Mapping[str, object]:
        """As facts have it."""
        return {
            "oid": self.oid,
            "publication": self.publication,
            "members": sorted(self.members),
            "row_filter": self.row_filter,
            "parts": sorted(self.parts),
            "labels": dict(self.labels),
            "width": self.width,
            "file": self.file,
        }


@dataclass(frozen=True, slots=True)
class TermsLook:
    """A look at a table of a publication: what the server's catalogue has of it now.

    ``strangers``: those of its parts that may have come with rows. ``columns``: their names, without those that are
    computed from others. ``is_secured``: row level security hides rows from the session's user.
    """

    name: TableName
    terms: TableTerms
    strangers: frozenset[str]
    columns: frozenset[str]
    is_secured: bool
    is_partitioned: bool


def look_at_terms(ask: AskServer, publication: str, oids: Sequence[int]) -> dict[int, TermsLook]:
    """Of each table that there is. The row filters are left out."""
    looks = [_read_look(said) for (said,) in ask(TERMS_QUERY, [publication, list(oids)])]
    return {look.terms.oid: look for look in looks}


def find_break(was: TableTerms, now: TermsLook) -> str | None:
    """Why changes of the table may be missing in its log: what has happened to the table, as a clause. None: they are
    not. ``publication`` alone says what is so of all its tables.
    """
    terms = now.terms
    if terms.oid != was.oid:
        return "is another table than the one that was copied, which was renamed, moved or dropped"
    if _list_needed(was.members, terms.members) - terms.members:
        return (
            "has left the publication since, or was published otherwise for a while (its schema, its row filter, its "
            "list of columns, or what it is a partition of)"
        )
    if terms.row_filter != was.row_filter:
        return f"is published WHERE {terms.row_filter or 'true'}, and was WHERE {was.row_filter or 'true'}"
    if was.parts - terms.parts:
        return "has lost a partition, or one was truncated or written anew: the log of the whole has nothing of it"
    if (terms.parts - was.parts) & now.strangers:
        return "has got a partition that may have had rows before it was attached: the log has nothing of them"
    renamed = [(label, terms.labels[oid]) for oid, label in was.labels.items() if terms.labels.get(oid, label) != label]
    if renamed:
        before, behind = renamed[0]
        return f"has an enum whose value {before!r} was renamed to {behind!r}: rows of before have the old one"
    return None


def take_over(was: TableTerms, now: TermsLook, *, is_met: bool) -> TableTerms:
    """What counts from now on, where nothing is broken. ``is_met``: the log has shown all columns that there are."""
    terms = replace(now.terms, row_filter=was.row_filter)
    return terms if is_met or terms.width == was.width else replace(terms, width=was.width, file=was.file)


def write_terms(terms: TableTerms | None) -> Mapping[str, object]:
    """The fact; nothing if they are not known."""
    return {} if terms is None else {_FACT: terms.write()}


def read_terms(facts: Mapping[str, object]) -> TableTerms | None:
    """What ``write_terms`` wrote among the facts of a dataset; None: the dataset is older than they are."""
    found = facts.get(_FACT)
    return None if found is None else parse_terms(found)


def parse_terms(said: Any) -> TableTerms:
    """What ``TableTerms.write`` wrote. CorruptionError for anything else."""
    try:
        row_filter, file = said["row_filter"], said["file"]
        return TableTerms(
            int(said["oid"]),
            str(said["publication"]),
            frozenset(map(str, said["members"])),
            None if row_filter is None else str(row_filter),
            frozenset(map(str, said["parts"])),
            {str(oid): str(label) for oid, label in said["labels"].items()},
            int(said["width"]),
            None if file is None else int(file),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptionError("what is recorded of a table's terms can't be read", fact=json.dumps(said)) from error


def _list_needed(was: frozenset[str], now: frozenset[str]) -> frozenset[str]:
    """The entries without which changes may be missing: one of its own makes those of what it is a part of idle."""
    own = frozenset(each for each in was if _UNDER not in each)
    return own if own & now else was


def _read_look(said: Mapping[str, Any]) -> TermsLook:
    terms = TableTerms(
        int(said["oid"]),
        said["publication"],
        frozenset(said["members"] or ()),
        None,
        frozenset(said["parts"] or ()),
        said["labels"] or {},
        int(said["width"]),
        int(said["file"]),
    )
    return TermsLook(
        TableName(said["schema"], said["table"]),
        terms,
        frozenset(said["strangers"] or ()),
        frozenset(said["names"] or ()),
        is_secured=bool(said["is_secured"]),
        is_partitioned=bool(said["is_partitioned"]),
    )
