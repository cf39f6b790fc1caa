"""Catalogs of specs: what they promise, who listens to them, and what they count.

A catalog stores before its listeners hear. A listener that raises stops no other. What another process stored is heard
when the catalog looks again (``FlowCatalog.refresh``), each ``CATALOG_LOOK_EVERY_S``.
"""

import datetime as dt
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

from gobblin_assets.service.specs import Spec

CATALOG_LOOK_EVERY_S: Final = 1.0

S_co = TypeVar("S_co", bound=Spec, covariant=True)
S_contra = TypeVar("S_contra", bound=Spec, contravariant=True)
S = TypeVar("S", bound=Spec)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CatalogMetrics:
    """What a catalog counted since this process began, and how many specs it holds. ``changed_at``: the last change."""

    specs: int = 0
    puts: int = 0
    removals: int = 0
    listener_failures: int = 0
    changed_at: dt.datetime | None = None


class SpecListener(Protocol[S_contra]):
    """Hears of changes that are stored."""

    def on_put(self, spec: S_contra) -> None:
        """The spec is new, or replaces that of its URI."""
        ...

    def on_removed(self, uri: str) -> None: ...


class SpecCatalog(Protocol[S_co]):
    """A catalog of specs by their URIs, as those see it who only read."""

    def get_specs(self) -> Sequence[S_co]:
        """All, in the order of their URIs."""
        ...

    def get_spec(self, uri: str) -> S_co:
        """SpecNotFoundError: there is none of this URI."""
        ...

    @property
    def metrics(self) -> CatalogMetrics: ...


class SpecListeners(Generic[S]):
    """The listeners of one catalog, in the order in which they came, and the counts of what they were told."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[SpecListener[S], ...] = ()
        self._metrics = CatalogMetrics()

    def add(self, listener: SpecListener[S]) -> None:
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def tell_put(self, spec: S, at: dt.datetime) -> None:
        with self._lock:
            self._metrics = replace(self._metrics, puts=self._metrics.puts + 1, changed_at=at)
        for listener in self._listeners:
            try:
                listener.on_put(spec)
            except Exception:  # noqa: BLE001  whatever one listener does wrong, the others hear
                self._note_failure(spec.uri)

    def tell_removed(self, uri: str, at: dt.datetime) -> None:
        with self._lock:
            self._metrics = replace(self._metrics, removals=self._metrics.removals + 1, changed_at=at)
        for listener in self._listeners:
            try:
                listener.on_removed(uri)
            except Exception:  # noqa: BLE001  the same
                self._note_failure(uri)

    def measure(self, specs: int) -> CatalogMetrics:
        with self._lock:
            return replace(self._metrics, specs=specs)

    def _note_failure(self, uri: str) -> None:
        _log.exception("a listener failed at %s; the change is stored", uri)
        with self._lock:
            self._metrics = replace(self._metrics, listener_failures=self._metrics.listener_failures + 1)


def list_in_order(specs: Mapping[str, S]) -> Sequence[S]:
    return [specs[uri] for uri in sorted(specs)]
