"""``RateShareStore`` in Postgres, by the database's clock."""

import uuid
from typing import Final

from sqlalchemy import Connection, Engine, text

from gobblin_assets.db.transactions import transact
from gobblin_assets.state.rate_shares import SharedRate, refuse_definition

# Takers of one name wait for each other for the time of three short statements.
_LOCK = text("SELECT pg_advisory_xact_lock(:space, hashtext(:name))")

_OTHERWISE = text("""
    SELECT definition FROM gobblin.rate_share
     WHERE name = :name AND holder <> :holder AND definition <> :definition AND expires_at > clock_timestamp()
     LIMIT 1
""")

_RENEW = text("""
    UPDATE gobblin.rate_share
       SET expires_at = clock_timestamp() + make_interval(secs => :ttl_s)
     WHERE name = :name AND holder = :holder
""")

# The lowest number that nobody holds; a row that ran out gives way, unless its holder renews it at this moment.
_TAKE = text("""
    INSERT INTO gobblin.rate_share (name, share, holder, definition, expires_at)
    SELECT :name, given, :holder, :definition, clock_timestamp() + make_interval(secs => :ttl_s)
      FROM generate_series(1, :shares) AS given
     WHERE NOT EXISTS (
               SELECT FROM gobblin.rate_share r
                WHERE r.name = :name AND r.share = given AND r.expires_at > clock_timestamp()
           )
     ORDER BY given
     LIMIT 1
        ON CONFLICT (name, share) DO UPDATE
       SET holder = EXCLUDED.holder, definition = EXCLUDED.definition, expires_at = EXCLUDED.expires_at
     WHERE rate_share.expires_at <= clock_timestamp()
""")

_RELEASE = text("DELETE FROM gobblin.rate_share WHERE name = :name AND holder = :holder")

# Any constant does, as long as nobody else in the database uses it with another meaning.
_LOCK_SPACE: Final = int.from_bytes(b"rate")


class PostgresRateShareStore:
    """``RateShareStore`` over the table ``rate_share``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def take(self, rate: SharedRate, holder: uuid.UUID, *, ttl_s: float) -> bool:
        arguments = {"name": rate.name, "holder": holder, "definition": rate.definition, "ttl_s": ttl_s}

        def take(connection: Connection) -> bool:
            connection.execute(_LOCK, {"space": _LOCK_SPACE, "name": rate.name})
            otherwise = connection.execute(_OTHERWISE, arguments).scalar()
            if otherwise is not None:
                raise refuse_definition(rate, otherwise)
            # It is ours already if the acknowledgement of an earlier try was lost.
            if connection.execute(_RENEW, arguments).rowcount:
                return True
            return connection.execute(_TAKE, {**arguments, "shares": rate.shares}).rowcount == 1

        return transact(self._engine, "take a share of a rate", take)

    def renew(self, rate: SharedRate, holder: uuid.UUID, *, ttl_s: float) -> bool:
        arguments = {"name": rate.name, "holder": holder, "ttl_s": ttl_s}
        return transact(self._engine, "renew a share of a rate", lambda c: c.execute(_RENEW, arguments).rowcount) == 1

    def release(self, rate: SharedRate, holder: uuid.UUID) -> None:
        arguments = {"name": rate.name, "holder": holder}
        transact(self._engine, "release a share of a rate", lambda c: c.execute(_RELEASE, arguments).rowcount)
