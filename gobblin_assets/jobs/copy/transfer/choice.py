"""Chooses the way of each order: this machine, or the executors of the Spark that the run was given.

Spark is imported and started only for an order that goes to it, or that is worth a look at the executors.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.jobs.copy.copyable import CopyItem
from gobblin_assets.jobs.copy.transfer.bins import list_items, weigh_item
from gobblin_assets.jobs.copy.transfer.transfer_port import Executors, FileResult, Transfer, TransferOrder, TransferWay

SPARK_WEIGHT_MIN: Final = 8 << 30
"""Less than this (``weigh_item``) is copied by this machine: looking at the executors and starting a job takes seconds.

They are a fifth of the time in which one machine copies so much within its memory.
"""

_ONE_EXECUTOR: Final = ("local", "local[")


class SparkSessions(Protocol):
    """The Spark that a run was given. Nothing starts before ``get_session``."""

    @property
    def master(self) -> str | None: ...

    @property
    def remote(self) -> str | None: ...

    def get_session(self) -> Any:
        """A SparkSession, always the same."""
        ...

    def interrupt(self, attempt: AttemptRecord) -> None:
        """End the work of a dead attempt on a Connect server."""
        ...


class _SparkTransfer(Transfer, Protocol):
    """A transfer that looks at the executors before it copies."""

    def probe(self, order: TransferOrder) -> Executors: ...

    def copy_with(self, order: TransferOrder, executors: Executors) -> Iterator[tuple[FileResult, ...]]: ...


class ChosenTransfer:
    """The Transfer port by the job's ``transfer``. ``spark`` None: the run has no Spark. Safe to share between threads.

    AUTO copies on Spark where a session on several executors was asked for, the order is large, and each executor sees
    both sides; if any of it fails, this machine copies. ``say`` hears which way was taken, and why.
    """

    def __init__(
        self, way: TransferWay, local: Transfer, spark: SparkSessions | None, say: Callable[[str], None]
    ) -> None:
        if way is TransferWay.SPARK and spark is None:
            raise RejectedError(
                "this run has no Spark", field="transfer", hint="Run the job by a command, or write `transfer: local`."
            )
        self._way = way
        self._local = local
        self._spark = spark
        self._say = say
        self._opened: _SparkTransfer | None = None
        self._said = ""
        self._lock = threading.Lock()

    def copy(self, order: TransferOrder) -> Iterator[tuple[FileResult, ...]]:
        match self._way:
            case TransferWay.LOCAL:
                yield from self._local.copy(order)
            case TransferWay.SPARK:
                transfer = self._open()
                executors = transfer.probe(order)
                self._say_once(f"transfer: Spark, as the job says ({_describe(executors)})")
                yield from transfer.copy_with(order, executors)
            case TransferWay.AUTO:
                yield from self._copy_by_probe(order)

    def describe_interruption(self, tag: str, items: Sequence[CopyItem]) -> Mapping[str, object] | None:
        if self._way is TransferWay.LOCAL or (self._way is TransferWay.AUTO and self._find_reason_against(items)):
            return None
        try:
            return self._open().describe_interruption(tag, items)
        except GobblinError:
            if self._way is TransferWay.SPARK:
                raise
            # The order, which comes next, says so and is copied here.
            return None

    def cancel(self, tag: str) -> None:
        self._local.cancel(tag)
        with self._lock:
            opened = self._opened
        if opened is not None:
            opened.cancel(tag)

    def _copy_by_probe(self, order: TransferOrder) -> Iterator[tuple[FileResult, ...]]:
        reason = self._find_reason_against(list_items(order.bins))
        if reason:
            self._say_once(f"transfer: this machine, since {reason}")
            yield from self._local.copy(order)
            return
        try:
            transfer = self._open()
            executors = transfer.probe(order)
            reason = _judge(executors)
        except GobblinError as error:
            reason = str(error)
        if reason:
            self._say_once(f"transfer: this machine, since {reason}")
            yield from self._local.copy(order)
            return
        self._say_once(f"transfer: Spark, since every executor sees both sides ({_describe(executors)})")
        yield from transfer.copy_with(order, executors)

    def _find_reason_against(self, items: Sequence[CopyItem]) -> str:
        """The reason against Spark before any session is opened; "" if nothing does."""
        if self._spark is None or not (self._spark.master or self._spark.remote):
            return "no Spark was asked for"
        master = self._spark.master or ""
        if not self._spark.remote and (master == _ONE_EXECUTOR[0] or master.startswith(_ONE_EXECUTOR[1])):
            return f"{master} has one executor, which is this machine"
        weight = sum(map(weigh_item, items))
        return "" if weight >= SPARK_WEIGHT_MIN else "a Spark job would take longer to begin"

    def _open(self) -> _SparkTransfer:
        with self._lock:
            if self._opened is None:
                if self._spark is None:
                    raise ValueError("no Spark to open")
                session = self._spark.get_session()
                from gobblin_assets.jobs.copy.transfer.spark_transfer import SparkTransfer  # noqa: PLC0415  Spark takes half a second

                self._opened = SparkTransfer(session)
            return self._opened

    def _say_once(self, line: str) -> None:
        """Many orders of a run go the same way for the same reason."""
        with self._lock:
            if line == self._said:
                return
            self._said = line
        self._say(line)


def _judge(executors: Executors) -> str:
    if executors.blind:
        return "; ".join(executors.blind)
    return "" if executors.count > 1 else "Spark has one executor"


def _describe(executors: Executors) -> str:
    return f"{executors.count} executors, {executors.slots} tasks at once"
