"""The flows of the demo, as a person describes them: what data shall be where."""

from collections.abc import Mapping
from typing import Any, Final

from demo.service.proof import NAMESPACE
from demo.service.sources import CHANGED, PUBLICATION, RECORD, TOPIC

GROUP: Final = "nyc"

FLIGHTS: Final = {
    "flow_group": GROUP,
    "flow_name": "flights",
    "description": "Flights as they come, and the airlines as they are.",
    "source": "nyc",
    "destinations": ["lake"],
    "parameters": {
        "datasets": [
            {
                "table": "public.flights",
                "primary_key": ["time_hour", "carrier", "flight", "origin"],
                "watermark_column": "time_hour",
            },
            {"table": "public.airlines", "primary_key": ["carrier"]},
        ]
    },
}
CHANGES: Final = {
    "flow_group": GROUP,
    "flow_name": "changes",
    "description": "Each change of planes and airports.",
    "source": "nyc_log",
    "destinations": ["lake"],
    "parameters": {
        "publication": PUBLICATION,
        "datasets": [{"table": f"public.{table}"} for table in CHANGED],
    },
}
WEATHER: Final = {
    "flow_group": GROUP,
    "flow_name": "weather",
    "description": "Records of the weather stations, by the broker in the office, in a table.",
    "source": "edge",
    "destinations": ["lakehouse"],
    "parameters": {
        "namespace": NAMESPACE,
        "datasets": [
            {
                "topic": TOPIC,
                "format": "json",
                "schema": ", ".join(f"{name} {kind}" for name, kind in RECORD.items()),
            }
        ],
    },
}


def copy_of(job: str) -> dict[str, Any]:
    """The flow that copies what a job publishes, by the job's ledger."""
    return {
        "flow_group": GROUP,
        "flow_name": "mirror",
        "description": "The flights and airlines of the lake in a second lake.",
        "source": {"node": "lake", "format": "dataset"},
        "destinations": ["mirror"],
        "parameters": {"datasets": [{"dataset": f"public.{table}", "job": job} for table in ("flights", "airlines")]},
    }


def path_of(config: Mapping[str, Any]) -> str:
    return f"/flows/{config['flow_group']}/{config['flow_name']}"
