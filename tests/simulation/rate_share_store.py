"""``SimRateShareStore(db)``: the port ``RateShareStore`` over a ``SimDatabase``."""

import uuid
from dataclasses import replace

from gobblin_assets.state.rate_shares import SharedRate, refuse_definition
from tests.simulation.database import SimDatabase
from tests.simulation.rows import RateShareRow


class SimRateShareStore:
    def __init__(self, db: SimDatabase) -> None:
        self._db = db

    def take(self, rate: SharedRate, holder: uuid.UUID, *, ttl_s: float) -> bool:
        with self._db.transaction() as db:
            live = {
                key: row for key, row in db.rate_shares.items() if key[0] == rate.name and row.expires_at > db.now_s
            }
            for row in live.values():
                if row.holder != holder and row.definition != rate.definition:
                    raise refuse_definition(rate, row.definition)
            if _extend(db, rate, holder, ttl_s):
                return True
            free = [number for number in range(1, rate.shares + 1) if (rate.name, number) not in live]
            if free:
                db.rate_shares.put((rate.name, free[0]), RateShareRow(holder, rate.definition, db.now_s + ttl_s))
        return bool(free)

    def renew(self, rate: SharedRate, holder: uuid.UUID, *, ttl_s: float) -> bool:
        with self._db.transaction() as db:
            return _extend(db, rate, holder, ttl_s)

    def release(self, rate: SharedRate, holder: uuid.UUID) -> None:
        with self._db.transaction() as db:
            for key in _keys_of(db, rate, holder):
                db.rate_shares.drop(key)


def _extend(db: SimDatabase, rate: SharedRate, holder: uuid.UUID, ttl_s: float) -> bool:
    keys = _keys_of(db, rate, holder)
    for key in keys:
        db.rate_shares.put(key, replace(db.rate_shares[key], expires_at=db.now_s + ttl_s))
    return bool(keys)


def _keys_of(db: SimDatabase, rate: SharedRate, holder: uuid.UUID) -> list[tuple[str, int]]:
    return [key for key, row in db.rate_shares.items() if key[0] == rate.name and row.holder == holder]
