"""Batches of Structured Streaming, published exactly once: restarts, repetitions, gaps and other queries."""

from tests.support.query_batches import Clicks, clicks, rows_of

__all__ = ["clicks"]


def test_each_batch_is_a_publication_and_a_restart_goes_on(clicks: Clicks) -> None:
    clicks.put("a", range(5))
    clicks.put("b", range(5, 9))
    query_id = clicks.run()

    assert clicks.rows() == rows_of(*range(9)), clicks.lines
    clicks.put("c", range(9, 12))
    assert clicks.run() == query_id
    assert clicks.rows() == rows_of(*range(12))
    print(clicks.lines)
    print(clicks.ask_log("SELECT name, watermark FROM gobblin.watermark_key"))
