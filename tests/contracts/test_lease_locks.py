"""Which rows taking leases locks in Postgres, and which it leaves alone."""

from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Engine, text

from gobblin_assets.state.leases import Holder
from tests.support.commit_log import TTL_S, open_postgres


def test_a_taker_does_not_wait_for_what_others_hold(emptied_engine: Engine) -> None:
    """Otherwise a heartbeat would wait behind the taker for as long as another process's transition lasts."""
    log = open_postgres(emptied_engine)
    held, free = log.register("orders"), log.register("clicks")
    log.take(held)
    with emptied_engine.connect() as connection, ThreadPoolExecutor(1) as pool:
        connection.execute(text("SELECT FROM gobblin.lease WHERE lane_id = :id FOR KEY SHARE"), {"id": held})
        taken = pool.submit(log.leases.take, [held, free], Holder("another worker", log.start_run()), ttl_s=TTL_S)
        try:
            assert [lease.dataset_id for lease in taken.result(10)] == [free]
        finally:
            connection.rollback()
