"""JSON as Postgres' jsonb can hold it."""

import json
import re
from typing import Final

# Behind an even number of backslashes: an odd one makes the first of these a backslash that somebody wrote.
_NUL: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def to_jsonb(value: object) -> str:
    """Text for a ``CAST(:x AS jsonb)``. jsonb has no NUL character; it is stored as U+FFFD."""
    return _NUL.sub("\\1\ufffd", json.dumps(value, ensure_ascii=False, default=str))
