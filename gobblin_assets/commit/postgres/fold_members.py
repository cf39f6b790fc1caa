"""The sequences that may be folded, as the log in Postgres has them."""

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from gobblin_assets.commit.folding import FoldBounds, FoldMember
from gobblin_assets.commit.named_folding import NamedMember
from gobblin_assets.model.state import LaneId, SequenceId

UNREPORTED_S: Final = 7 * 86_400.0
"""Publications that were not reported to Dagster, or not delivered to a sink of events, wait so long: a fold does not
name their files."""

# Nothing of the sequence is retired: retired publications go with history.
_IS_ACTIVE: Final = """
    NOT EXISTS (SELECT FROM gobblin.segment g WHERE g.sequence_id = s.sequence_id AND g.retired_by IS NOT NULL)
       AND NOT EXISTS (SELECT FROM gobblin.ledger l WHERE l.sequence_id = s.sequence_id AND NOT l.active)
"""

_IS_DUE: Final = f"""
    (s.announced_at IS NOT NULL OR s.done_at <= clock_timestamp() - make_interval(secs => :unreported_s))
       AND s.result_version <= d.version - :keep
       AND s.done_at <= clock_timestamp() - make_interval(secs => :age_s)
       AND NOT EXISTS (SELECT FROM gobblin.attempt a WHERE a.sequence_id = s.sequence_id AND a.cleaned_at IS NULL)
       AND {_IS_ACTIVE}
       AND (s.step_count = 0 OR s.details ? 'compaction'
            OR s.done_at <= clock_timestamp() - make_interval(secs => :unreported_s)
            OR NOT EXISTS (SELECT FROM gobblin.event_cursor c
                            WHERE c.dataset_id = s.dataset_id AND c.version < s.result_version))
"""

_MEMBER_COLUMNS: Final = (
    "s.sequence_id, s.partition, s.details ->> 'root_uri' AS root_uri, s.details ->> 'moved' AS moved, s.result_version"
)

_ENTRY_COUNT: Final = "(SELECT count(*) FROM gobblin.ledger l WHERE l.sequence_id = s.sequence_id) AS entry_count"

_UNFOLDED: Final = """
      FROM gobblin.dataset d JOIN gobblin.commit_sequence s USING (dataset_id)
     WHERE s.lane_id = :lane_id AND s.state = 'DONE' AND s.folded_at IS NULL
"""

_MEMBERS = text(f"""
    SELECT {_MEMBER_COLUMNS}, {_ENTRY_COUNT}
      {_UNFOLDED} AND NOT s.details ? 'slots_keep_s' AND {_IS_DUE}
     ORDER BY s.partition, s.result_version
     LIMIT :limit
""")

_NAMED_MEMBERS = text(f"""
    SELECT {_MEMBER_COLUMNS}, {_ENTRY_COUNT}, s.step_count, {_IS_DUE} AS is_due
      {_UNFOLDED} AND s.details ? 'slots_keep_s'
     ORDER BY s.result_version
     LIMIT :limit
""")

_EARLIER_FOLDS = text(f"""
    SELECT {_MEMBER_COLUMNS}, 0 AS entry_count
      FROM gobblin.commit_sequence s
     WHERE s.lane_id = :lane_id AND s.state = 'DONE' AND s.folded_at IS NOT NULL
       AND (s.details ? 'slots_keep_s') = :is_named
       AND s.partition = ANY (CAST(:partitions AS text[])) AND {_IS_ACTIVE}
""")


def find_members(connection: Connection, lane_id: LaneId, bounds: FoldBounds, limit: int) -> list[FoldMember]:
    """Those that may be folded, at names that are always new."""
    return [_member_of(row) for row in connection.execute(_MEMBERS, _asked(lane_id, bounds, limit))]


def find_named_members(connection: Connection, lane_id: LaneId, bounds: FoldBounds, limit: int) -> list[NamedMember]:
    """The oldest unfolded ones at given names."""
    rows = connection.execute(_NAMED_MEMBERS, _asked(lane_id, bounds, limit))
    return [NamedMember(_member_of(row), row.step_count, row.is_due) for row in rows]


def find_earlier_folds(
    connection: Connection, lane_id: LaneId, members: Iterable[FoldMember], *, is_named: bool
) -> list[FoldMember]:
    """The folds of the members' partitions."""
    partitions = list({member.partition for member in members})
    asked = {"lane_id": lane_id, "partitions": partitions, "is_named": is_named}
    return [_member_of(row) for row in connection.execute(_EARLIER_FOLDS, asked)]


def _asked(lane_id: LaneId, bounds: FoldBounds, limit: int) -> dict[str, object]:
    asked = {"lane_id": lane_id, "keep": bounds.keep, "age_s": bounds.age_s, "limit": limit}
    return {**asked, "unreported_s": UNREPORTED_S}


def _member_of(row: Row[Any]) -> FoldMember:
    return FoldMember(
        SequenceId(row.sequence_id), row.partition, row.root_uri, row.result_version, row.entry_count, row.moved
    )
