"""The transactions that a copy of a table has: those that its snapshot saw. The stream behind it leaves them out.

A snapshot is (xmin, xmax, running): it saw every transaction below xmin that committed, and those from xmin up to xmax
that were not running (https://www.postgresql.org/docs/current/functions-info.html, pg_snapshot). Its numbers have 64
bits; the log's have 32, and mean the nearest one. Only transactions that ended before ``until`` can be among them.
"""

from dataclasses import dataclass
from functools import cached_property

from gobblin_assets.errors import CorruptionError
from gobblin_assets.sources.postgres_log.pgoutput import parse_lsn, write_lsn

_WRAP = 1 << 32


@dataclass(frozen=True)
class SeenTransactions:
    """The transactions that one snapshot saw.

    ``until``: the end of the log when the snapshot was there.
    """

    xmin: int
    xmax: int
    running: tuple[int, ...]
    until: int

    @cached_property
    def _running(self) -> frozenset[int]:
        return frozenset(self.running)

    def has(self, xid: int, commit_lsn: int) -> bool:
        """Whether the copy has the changes of a transaction that committed; ``xid`` as the log has it."""
        if commit_lsn >= self.until:
            return False
        whole = self._widen(xid)
        return whole < self.xmin or (whole < self.xmax and whole not in self._running)

    def write(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.running))}@{write_lsn(self.until)}"

    def _widen(self, xid: int) -> int:
        """The number with 64 bits that is nearest to xmax."""
        behind = (xid - self.xmax) % _WRAP
        return self.xmax + (behind if behind < _WRAP // 2 else behind - _WRAP)


def parse_seen(text: str) -> SeenTransactions:
    """What ``write`` wrote. CorruptionError for anything else."""
    snapshot, _, until = text.partition("@")
    return read_snapshot(snapshot, parse_lsn(until))


def read_snapshot(text: str, until: int) -> SeenTransactions:
    """A pg_snapshot as Postgres writes it, such as ``10:20:10,14``."""
    try:
        xmin, xmax, running = text.split(":")
        return SeenTransactions(int(xmin), int(xmax), tuple(int(each) for each in running.split(",") if each), until)
    except ValueError as error:
        raise CorruptionError(f"{text!r} is no snapshot of Postgres") from error
