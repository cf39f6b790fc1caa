"""The columns of a record that ``keep`` asks for, beside those that are decoded from its value."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.column_names import name_key
from gobblin_assets.rows.hidden_columns import DEAD_LETTER_COLUMN, SHARE_COLUMN
from gobblin_assets.sources.kafka.kafka_spec import Kept

KEPT_ORDER: Final[Mapping[Kept, str]] = {
    "key": "kafka_key",
    "topic": "kafka_topic",
    "partition": "kafka_partition",
    "offset": "kafka_offset",
    "timestamp": "kafka_timestamp",
    "timestamp_type": "kafka_timestamp_type",
    "headers": "kafka_headers",
}
"""The names of the columns that ``keep`` asks for, in their order."""


def list_kept(keep: Collection[Kept]) -> list[str]:
    """The columns' names, in their order."""
    return [column for kept, column in KEPT_ORDER.items() if kept in keep]


def require_own_names(decoded: Sequence[str], kept: Sequence[str], *, topic: str, field: str) -> None:
    """RejectedError for a field with the name of a kept or a hidden column. ``field`` is the place of the spec."""
    seen: dict[str, str] = {name_key(name): f"the kept column {name!r}" for name in kept}
    for name in decoded:
        other = seen.get(name_key(name))
        if other is not None:
            raise RejectedError(
                f"topic {topic!r}: the decoded field {name!r} and {other} would be one column",
                field=f"{field}.keep" if "kept" in other else f"{field}.value.schema",
                hint="Leave the one out of keep, or give a reader's schema without the other as `value.schema`.",
            )
        if name_key(name).startswith((DEAD_LETTER_COLUMN, SHARE_COLUMN)):
            raise RejectedError(
                f"topic {topic!r}: the decoded field {name!r} has the name of a column that Gobblin hides in rows",
                field=f"{field}.value.schema",
                hint="Give a reader's schema without it as `value.schema`.",
            )
        seen[name_key(name)] = f"the field {name!r}"
