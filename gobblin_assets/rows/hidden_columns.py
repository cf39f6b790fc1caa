"""The columns that go with rows unseen, and the paths that they become; ``row_quality`` says what they mean.

A write puts rows into directories that name their share and their role; then come output partitions. The outermost
directories are taken off a path before its files are published.
"""

from typing import Final

from gobblin_assets.errors import CorruptionError
from gobblin_assets.model.urn import Role
from gobblin_assets.spec.job_spec import WriterSpec

DEAD_LETTER_COLUMN: Final = "gobblin_dead_letter"
SHARE_COLUMN: Final = "gobblin_share"

REASON_COLUMN: Final = "dead_letter_reason"
"""In published dead letters."""
_HIDDEN_PREFIX: Final = "gobblin_"


def published_name(hidden: str) -> str:
    """The name in published dead letters of one of the hidden columns of dead letters."""
    return REASON_COLUMN if hidden == DEAD_LETTER_COLUMN else hidden.removeprefix(_HIDDEN_PREFIX)


ROLE_COLUMN: Final = "gobblin_role"


def parse_share_path(partition_path: str) -> tuple[str, str]:
    """Take the share off a path such as ``gobblin_share=orders/gobblin_role=data``: its name, and the rest."""
    first, _slash, rest = partition_path.partition("/")
    column, _equals, name = first.partition("=")
    if column != SHARE_COLUMN or not name:
        raise CorruptionError(f"{partition_path!r} does not begin with the directory of a share")
    return name, rest


def parse_role_path(partition_path: str) -> tuple[Role, str]:
    """Take the role off a path such as ``gobblin_role=quarantine/day=2013-01-01``; without one it is data."""
    first, _slash, rest = partition_path.partition("/")
    column, equals, value = first.partition("=")
    if column != ROLE_COLUMN or not equals:
        return Role.DATA, partition_path
    return Role(value), rest


def published_path(role: Role, partition_path: str, writer: WriterSpec) -> str:
    """The path of a written directory below its dataset. A dead letter's path loses the directory of the event time.

    This directory has the same value for all dead letters, so that no two directories become one.
    """
    if role is Role.DEAD_LETTER and writer.event_time is not None:
        return partition_path.rpartition("/")[0]
    return partition_path
