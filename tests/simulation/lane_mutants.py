"""Mutants of what the adapters do for lanes: of leases, vnodes, seals and finishes."""

from gobblin_assets.commit.postgres import lanes as lane_store
from gobblin_assets.commit.postgres import sealing
from gobblin_assets.state.postgres import leases as lease_store
from tests.simulation.mutant import Mutant, patched, with_sql

_LANE_STORE = ("tests/contracts/test_lane_store.py",)
_INTERLEAVED = ("tests/contracts/test_lanes_interleaving.py",)

OF_LANES = (
    Mutant(
        "the fence of a lane does not grow", with_sql(lease_store, "_TAKE_LANES", "fence + 1", "fence"), _LANE_STORE
    ),
    Mutant(
        "whoever takes a lane does not look at the whole",
        with_sql(lease_store, "_LIST_WHOLE", "w.is_whole", "false"),
        _LANE_STORE,
    ),
    Mutant(
        "taking a lane does not lock the whole",
        with_sql(lease_store, "_SHARE_WHOLE", "FOR KEY SHARE", ""),
        _INTERLEAVED,
    ),
    Mutant(
        "a vnode moves below an open sequence",
        with_sql(lane_store, "_MOVE", "m.key_id = k.key_id", "false"),
        _INTERLEAVED,
    ),
    Mutant("a move does not lock its vnodes", with_sql(lane_store, "_LOCK_VNODES", "FOR UPDATE", ""), _INTERLEAVED),
    Mutant(
        "the owner of vnodes is not fenced", patched(lane_store, "hold_fences", lambda *_arguments: None), _LANE_STORE
    ),
    Mutant(
        "a seal takes the keys of other lanes",
        with_sql(sealing, "_LOCK_KEYS", "k.lane_id = given.lane_id", "true"),
        _LANE_STORE,
    ),
)
