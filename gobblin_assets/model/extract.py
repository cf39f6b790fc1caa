"""The ways of reading a dataset."""

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
    """The effect of one materialization on a partition.

    ``APPEND`` publishes new rows, ``REFRESH`` replaces the published rows. ``AUTO`` leaves the choice to planning: a
    published window that is over is refreshed if a person asks for it again; a dataset without positions is always
    replaced.
    """

    APPEND = "append"
    REFRESH = "refresh"
    AUTO = "auto"


class OnNull(StrEnum):
    """The treatment of rows with NULL in the watermark column."""

    FAIL = "fail"
    IGNORE = "ignore"
    SNAPSHOT_ONLY = "snapshot_only"
