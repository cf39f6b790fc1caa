"""What kind of reading a dataset gets."""

from enum import StrEnum


class ExtractType(StrEnum):
    """Gobblin's ``extract.table.type``.

    ``SNAPSHOT_ONLY`` replaces the whole generation at each run. ``APPEND_ONLY`` continues from the watermark.
    ``SNAPSHOT_APPEND`` starts with everything (rows without a position included, if allowed), then appends.
    """

    SNAPSHOT_ONLY = "snapshot_only"
    APPEND_ONLY = "append_only"
    SNAPSHOT_APPEND = "snapshot_append"


class Mode(StrEnum):
    """What one materialization does to a partition: DESIGN §3."""

    APPEND = "append"
    REFRESH = "refresh"
    AUTO = "auto"


class OnNull(StrEnum):
    """What rows whose watermark column is NULL mean."""

    FAIL = "fail"
    IGNORE = "ignore"
    SNAPSHOT_ONLY = "snapshot_only"
