"""Leases that run out when a test says so: one that a busy machine never loses is too long to be waited for."""

from sqlalchemy import Engine, text


def expire_all_leases(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE gobblin.lease SET expires_at = clock_timestamp() - interval '1 second'"))
