"""The commit log as commands open it."""

from contextlib import AbstractContextManager

from gobblin_assets.cli.output import say
from gobblin_assets.run import log
from gobblin_assets.run.log import Log

__all__ = ["Log", "open_log"]


def open_log() -> AbstractContextManager[Log]:
    """The log that GOBBLIN_DATABASE_URL names, else the embedded one; what starts is said."""
    return log.open_log(say)
