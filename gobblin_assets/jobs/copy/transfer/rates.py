"""A copy's share of a rate that several drivers keep together: leased before the first byte, renewed, given back."""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from gobblin_assets.errors import RetryableError
from gobblin_assets.jobs.copy.transfer.transfer_port import Rate
from gobblin_assets.model.clock import Clock
from gobblin_assets.state.rate_shares import RateShareStore, SharedRate

ASK_EVERY_S: Final = 1.0
"""How often a copy that waits asks for a share."""

RENEWALS_PER_LEASE: Final = 4
LOCAL_LIMIT_FRACTION: Final = 2 / 3


class SharedCopyRate:
    """A rate that copies share: each copy of a run leases a share of its own. Safe to share between threads."""

    def __init__(
        self, store: RateShareStore, rate: SharedRate, clock: Clock, say: Callable[[str], None], *, ttl_s: float
    ) -> None:
        self._store = store
        self._rate = rate
        self._clock = clock
        self._say = say
        self._ttl_s = ttl_s
        self._changed = threading.Condition()
        self._cancelled: set[str] = set()

    def cancel(self, tag: str) -> None:
        """End the wait of this copy, or that which it begins later."""
        with self._changed:
            self._cancelled.add(tag)
            self._changed.notify_all()

    @contextmanager
    def share(self, tag: str, stop: Callable[[], None]) -> Iterator[Rate]:
        """A share for the block. ``stop`` is called from another thread if the share is lost.

        RetryableError if the wait was cancelled, or the share was lost before the block ended.
        """
        holder = uuid.uuid4()
        limit_s = self._wait_for_share(tag, holder)
        renewal = _Renewal(self._store, self._rate, holder, self._clock, self._ttl_s, limit_s, stop)
        renewal.start()
        try:
            yield Rate(self._share_of(self._rate.bytes_per_s), self._share_of(self._rate.files_per_s))
        except RetryableError as error:
            # What was stopped for this reason says only that it was cancelled.
            if renewal.is_lost:
                raise self._lost() from error
            raise
        finally:
            renewal.end()
            self._give_back(holder)
        if renewal.is_lost:
            raise self._lost()

    def _share_of(self, per_s: float | None) -> float | None:
        return None if per_s is None else per_s / self._rate.shares

    def _give_back(self, holder: uuid.UUID) -> None:
        try:
            self._store.release(self._rate, holder)
        except Exception as error:  # noqa: BLE001  what the copy ended with counts, and not this
            self._say(f"the share of the rate {self._rate.name} could not be given back, and runs out: {error}")

    def _lost(self) -> RetryableError:
        return RetryableError(
            f"the share of the rate {self._rate.name} was lost",
            hint="The log was out of reach; the next try takes one.",
        )

    def _wait_for_share(self, tag: str, holder: uuid.UUID) -> float:
        """The moment of the local clock until which the share that was taken is surely ours."""
        is_said = False
        while True:
            asked_s = self._clock.monotonic()
            if self._store.take(self._rate, holder, ttl_s=self._ttl_s):
                return asked_s + self._ttl_s * LOCAL_LIMIT_FRACTION
            if not is_said:
                is_said = True
                self._say(f"waits for one of the {self._rate.shares} shares of the rate {self._rate.name}")
            with self._changed:
                if self._changed.wait_for(lambda: tag in self._cancelled, ASK_EVERY_S):
                    raise RetryableError("the copy was cancelled while it waited for its rate", tag=tag)


class _Renewal:
    """The renewal of one share, by a thread of its own."""

    def __init__(
        self,
        store: RateShareStore,
        rate: SharedRate,
        holder: uuid.UUID,
        clock: Clock,
        ttl_s: float,
        limit_s: float,
        stop: Callable[[], None],
    ) -> None:
        self._store = store
        self._rate = rate
        self._holder = holder
        self._clock = clock
        self._ttl_s = ttl_s
        self._limit_s = limit_s
        self._stop = stop
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="rate-share", daemon=True)
        self.is_lost = False

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ending.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._ending.wait(self._ttl_s / RENEWALS_PER_LEASE):
            asked_s = self._clock.monotonic()
            try:
                is_held = self._store.renew(self._rate, self._holder, ttl_s=self._ttl_s)
            except Exception:  # noqa: BLE001  whatever it was, the share runs out
                is_held = self._clock.monotonic() < self._limit_s
            else:
                self._limit_s = asked_s + self._ttl_s * LOCAL_LIMIT_FRACTION
            if not is_held:
                self.is_lost = True
                self._stop()
                return
