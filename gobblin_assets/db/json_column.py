"""JSON as Postgres' jsonb can hold it."""

import json


def to_jsonb(value: object) -> str:
    """Text for a ``CAST(:x AS jsonb)``. jsonb has no NUL character; it is stored as U+FFFD."""
    return json.dumps(value, ensure_ascii=False, default=str).replace("\\u0000", "\ufffd")
