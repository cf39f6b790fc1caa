"""What a catalog keeps of a flow for when its store is away."""

import datetime as dt
import uuid

from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.flow_store import FlowCopy, FlowState, Owner, StoredFlow
from gobblin_assets.service.specs import FlowSpec

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


def test_a_flow_is_read_from_its_copy_as_it_was_stored() -> None:
    config = FlowConfig.model_validate(
        {
            "flow_group": "sales",
            "flow_name": "orders — all",
            "description": "Each night",
            "source": "shop",
            "destinations": ["lake", {"node": "mirror", "format": "dataset"}],
            "parameters": {"datasets": [{"table": "public.orders", "share": 0.25}]},
            "schedule": "0 3 * * *",
            "timezone": "Europe/Berlin",
            "spread": "15m",
            "windows": [{"start": "12:15", "end": "12:45"}],
            "retries": 2,
        }
    )
    flow = StoredFlow(
        flow_id=uuid.uuid4(),
        spec=FlowSpec("gobblin-flow:/sales/orders", "7", config.description, config, pins={"default": "2"}),
        state=FlowState.PENDING,
        reasons=("no executor",),
        owner=Owner("ann", frozenset({"sales"})),
        created_at=NOW,
        updated_at=NOW,
        change=12,
        generation=1,
        runs_when_able=True,
        next_fire_at=NOW,
    )
    copied = FlowCopy.of(flow).load()
    assert copied.spec.config == config
    assert copied.spec.uri == flow.spec.key.uri
    assert FlowCopy.of(copied) == FlowCopy.of(flow)
    assert FlowCopy.of(copied).load() == copied
