"""A plan reads only the end of a ledger that a stream has made long, by Postgres' own statistics."""

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Engine, event, text

from gobblin_assets.model.watermark import long_watermark
from tests.contracts.test_shared_keys import go_on
from tests.support.commit_log import JOB, open_postgres

ENTRIES = 5_000
ROWS_VISITED_MAX = 50

_PUBLISH = text("""
    INSERT INTO gobblin.commit_sequence
           (sequence_id, dataset_id, lane_id, run_id, partition, mode, replaces, fence, state, base_version,
            result_version, digest)
    SELECT given.id, s.dataset_id, s.lane_id, s.run_id, s.partition, s.mode, s.replaces, s.fence, s.state,
           n, n + 1, s.digest
      FROM gobblin.commit_sequence s, unnest(CAST(:ids AS uuid[])) WITH ORDINALITY AS given (id, n)
""")
_ADVANCE = text("""
    INSERT INTO gobblin.ledger (key_id, sequence_id, is_generation, low, high, low_bytes, high_bytes)
    SELECT l.key_id, given.id, false, l.low, l.high, given.low, given.high
      FROM gobblin.ledger l,
           unnest(CAST(:ids AS uuid[]), CAST(:lows AS bytea[]), CAST(:highs AS bytea[])) AS given (id, low, high)
""")


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _count_visited(plan: Mapping[str, Any], relation: str) -> float:
    return sum(
        node["Actual Loops"]
        * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0))
        for node in _nodes(plan)
        if node.get("Relation Name") == relation
    )


def test_what_lies_below_the_watermarks_is_not_looked_at(emptied_engine: Engine) -> None:
    log = open_postgres(emptied_engine)
    lease = log.take(log.register("orders"))
    go_on(log, lease, "day 1", None, (ENTRIES, ENTRIES + 10))
    edges = [long_watermark(number).encode() for number in range(ENTRIES + 1)]
    ids = [uuid.uuid4() for _entry in range(1, ENTRIES)]
    with emptied_engine.begin() as connection:
        connection.execute(_PUBLISH, {"ids": ids})
        connection.execute(_ADVANCE, {"ids": ids, "lows": edges[1:-1], "highs": edges[2:]})
        # Of the keys too: TRUNCATE leaves the statistics of an earlier test, whose dataset may have had thousands.
        connection.execute(text("ANALYZE gobblin.commit_sequence, gobblin.ledger, gobblin.watermark_key"))
    asked: list[tuple[str, Any]] = []

    def keep(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
        if "gobblin.ledger" in statement:
            asked.append((statement, parameters))

    event.listen(emptied_engine, "before_cursor_execute", keep)
    (state,) = log.datasets.load(JOB, [log.state_of(lease.dataset_id).urn]).values()
    event.remove(emptied_engine, "before_cursor_execute", keep)

    assert state.ahead == {}
    assert state.published == {"day 1"}
    assert asked
    with emptied_engine.begin() as connection:
        for statement, parameters in asked:
            explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
            (plan,) = connection.exec_driver_sql(explain, parameters).scalar_one()
            for table in ("ledger", "commit_sequence"):
                assert _count_visited(plan["Plan"], table) <= ROWS_VISITED_MAX, statement
