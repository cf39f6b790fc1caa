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
    """What one materialization does to a partition.

    ``APPEND`` publishes what is new, ``REFRESH`` replaces what is published. ``AUTO`` leaves it to planning: a window
    that is over and published is refreshed if a person asks for it again; what has no positions is always replaced.
    """

    APPEND = "append"
    REFRESH = "refresh"
    AUTO = "auto"


class OnNull(StrEnum):
    """What rows whose watermark column is NULL mean."""

    FAIL = "fail"
    IGNORE = "ignore"
    SNAPSHOT_ONLY = "snapshot_only"
