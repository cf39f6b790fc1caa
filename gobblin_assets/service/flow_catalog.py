"""The catalog of flows: the store, with a copy of all flows in memory for when the store is away.

The copy has the text of configs. What is asked of it is read from the text then.
"""

import datetime as dt
import gc
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import OutcomeUnknownError, RetryableError
from gobblin_assets.service.access import EVERY_FLOW, FlowScope
from gobblin_assets.service.catalogs import CatalogMetrics, SpecListeners, list_in_order
from gobblin_assets.service.flow_store import (
    FlowCopy,
    FlowPage,
    FlowState,
    FlowStore,
    FlowWrite,
    RequestKey,
    StoredFlow,
    no_flow,
)
from gobblin_assets.service.specs import FlowKey, FlowSpec, parse_flow_uri

_CHANGES_AT_ONCE_MAX: Final = 5_000

_AWAY_S: Final = 1.0
"""After a failed read, the copy answers for this time before the store is asked again."""

_SILENT_S: Final = 5.0
"""A store that has not answered the catalog for so long is away: a network that is cut refuses nothing."""


@dataclass(frozen=True, slots=True)
class FlowsRead:
    """Flows, and the age of what was read: 0 from the store, else that of the copy in memory."""

    flows: tuple[StoredFlow, ...]
    age_s: float
    after: FlowKey | None = None


class FlowCatalog:
    """A catalog of flows over a ``FlowStore``. It stores first, then its copy changes, then its listeners hear."""

    def __init__(
        self,
        store: FlowStore,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        self._store = store
        self._monotonic = monotonic
        self._now = now
        self._listeners = SpecListeners[FlowSpec]()
        # Held while the copy changes and listeners hear, so that both see changes in one order.
        self._lock = threading.RLock()
        # Held by the one look of now, which waits for the store while others read the copy.
        self._looking = threading.Lock()
        self._asked_at: float | None = None
        self._flows: dict[str, FlowCopy] = {}
        self._number = 0
        self._read_at: float | None = None
        self._away_until = 0.0

    def refresh(self) -> int:
        """Read what changed in the store since the last look, and tell the listeners. Returns the count of changes."""
        with self._looking, _collector_paused(is_paused=self._read_at is None):
            looked_at = self._monotonic()
            try:
                told = self._look(is_first=self._read_at is None)
            finally:
                self._asked_at = None
            self._read_at = looked_at
            return told

    def _look(self, *, is_first: bool) -> int:
        self._asked_at = self._monotonic()
        if self._store.find_change_number() == self._number:
            return 0
        told, is_all = 0, False
        while not is_all:
            self._asked_at = self._monotonic()
            changes = self._store.read_changes(self._number, limit=_CHANGES_AT_ONCE_MAX)
            with self._lock:
                for flow in changes.flows:
                    told += self._take(flow, tells=not is_first)
                for key, flow_id in changes.gone:
                    told += self._drop(key.uri, flow_id)
                self._number, is_all = changes.number, changes.is_all
        return told

    def put(
        self, flow_id: uuid.UUID, write: FlowWrite, *, if_version: str | None = None, request: RequestKey | None = None
    ) -> StoredFlow:
        """Store a new flow, or the next version of the flow that is at ``if_version``."""
        if if_version is None:
            stored = self._store.create(flow_id, write, request)
        else:
            stored = self._store.change(flow_id, write, if_version=if_version)
        with self._lock:
            self._take(FlowCopy.of(stored), tells=True)
        return stored

    def remove(self, key: FlowKey, *, if_version: str | None = None) -> StoredFlow | None:
        """Remove the flow; None: there was none."""
        removed = self._store.delete(key, if_version=if_version)
        if removed is not None:
            with self._lock:
                self._drop(key.uri, removed.flow_id)
        return removed

    def note(self, flow: StoredFlow) -> None:
        """Take what the store has of a flow now."""
        with self._lock:
            self._take(FlowCopy.of(flow), tells=False)

    def get_specs(self) -> Sequence[FlowSpec]:
        with self._lock:
            return list_in_order({uri: flow.load().spec for uri, flow in self._flows.items()})

    def get_spec(self, uri: str) -> FlowSpec:
        return self.get_flow(parse_flow_uri(uri)).flows[0].spec

    def get_flow(self, key: FlowKey) -> FlowsRead:
        """The flow. Raises SpecNotFoundError; RetryableError if neither the store nor the copy can tell."""

        def copied() -> FlowsRead:
            found = self._flows.get(key.uri)
            return self._from_copy(() if found is None else (found.load(),), None)

        def stored() -> FlowsRead:
            found = self._store.find(key)
            return FlowsRead(() if found is None else (found,), 0.0)

        read = self._read(stored, copied)
        if not read.flows:
            raise no_flow(key)
        return read

    def list_flows(
        self,
        *,
        group: str | None = None,
        search: str | None = None,
        after: FlowKey | None = None,
        limit: int = 50,
        scope: FlowScope = EVERY_FLOW,
        is_pending: bool = False,
    ) -> FlowsRead:
        """Flows in the order of their groups and names; from the copy while the store is away."""

        def copied() -> FlowsRead:
            visible = (
                flow
                for flow in self._flows.values()
                if scope.includes(flow.key) and (not is_pending or flow.state is FlowState.PENDING)
            )
            page = _choose(visible, group, search, after, limit)
            return self._from_copy(page.flows, page.after)

        def stored() -> FlowsRead:
            page = self._store.list_flows(
                group=group, search=search, after=after, limit=limit, scope=scope, is_pending=is_pending
            )
            return FlowsRead(page.flows, 0.0, page.after)

        return self._read(stored, copied)

    def measure_age_s(self) -> float:
        """0 while the store answers, else the age of the copy in memory."""
        with self._lock:
            if not self._is_away() or self._read_at is None:
                return 0.0
            return self._monotonic() - self._read_at

    @property
    def listeners(self) -> SpecListeners[FlowSpec]:
        return self._listeners

    @property
    def metrics(self) -> CatalogMetrics:
        return self._listeners.measure(len(self._flows))

    def _read(self, stored: Callable[[], FlowsRead], copied: Callable[[], FlowsRead]) -> FlowsRead:
        if self._read_at is None or not self._is_away():
            try:
                return stored()
            except (RetryableError, OutcomeUnknownError):
                self._away_until = self._monotonic() + _AWAY_S
                if self._read_at is None:
                    raise
        with self._lock:
            return copied()

    def _is_away(self) -> bool:
        now, asked_at = self._monotonic(), self._asked_at
        return now < self._away_until or (asked_at is not None and now - asked_at > _SILENT_S)

    def _from_copy(self, flows: Sequence[StoredFlow], after: FlowKey | None) -> FlowsRead:
        if self._read_at is None:
            raise RetryableError("the flows were not read yet, and their store does not answer", passes=True)
        return FlowsRead(tuple(flows), self._monotonic() - self._read_at, after)

    def _take(self, flow: FlowCopy, *, tells: bool) -> bool:
        uri, held = flow.key.uri, self._flows.get(flow.key.uri)
        # Reads and writes of several threads overtake each other: what is older than the copy is no news.
        if flow.change <= self._number or (held is not None and flow.change <= held.change):
            return False
        self._flows[uri] = flow
        is_news = held is None or (held.flow_id, held.version) != (flow.flow_id, flow.version)
        if is_news and tells:
            self._listeners.tell_put(flow.load().spec, self._now())
        return is_news

    def _drop(self, uri: str, flow_id: uuid.UUID) -> bool:
        held = self._flows.get(uri)
        if held is None or held.flow_id != flow_id:
            return False
        del self._flows[uri]
        self._listeners.tell_removed(uri, self._now())
        return True


@contextmanager
def _collector_paused(*, is_paused: bool) -> Iterator[None]:
    """Without the collector of cycles: of 100,000 flows that all stay, it would take more time than reading them.

    What was read is left out of later collections as well, which would stop requests for half a second.
    """
    if not is_paused or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def _choose(
    flows: Iterable[FlowCopy], group: str | None, search: str | None, after: FlowKey | None, limit: int
) -> FlowPage:
    """What ``FlowStore.list_flows`` gives, of flows in memory."""
    wanted = (search or "").casefold()
    found = sorted(
        (
            flow
            for flow in flows
            if (group is None or flow.key.group == group) and (after is None or flow.key > after) and _has(flow, wanted)
        ),
        key=lambda flow: flow.key,
    )
    page = tuple(flow.load() for flow in found[:limit])
    return FlowPage(page, page[-1].spec.key if len(found) > limit else None)


def _has(flow: FlowCopy, wanted: str) -> bool:
    if any(wanted in text.casefold() for text in flow.key):
        return True
    description: str = json.loads(flow.config).get("description", "")
    return wanted in description.casefold()
