"""The catalog of packs: versions that were published, which never change and stay for ever.

A version is read when something asks for it, and the newest of each pack at once. What another process published is
seen by the next look, each ``CATALOG_LOOK_EVERY_S``.
"""

import datetime as dt
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.catalogs import CatalogMetrics
from gobblin_assets.service.template_store import TemplatePack, TemplatesInMemory, read_pack_file, version_key

VERSIONS_MAX: Final = 1_000
"""Of one pack."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PublishedPack:
    """A version of a pack as it was published. ``digest``: of its files, SHA-256 in hexadecimal digits."""

    name: str
    version: str
    description: str
    digest: str
    published_by: str
    published_at: dt.datetime


class PackStore(Protocol):
    """The store of packs. Every write is durable when the call returns; RetryableError if the store is away."""

    def find_change(self) -> object:
        """A value that differs after each publication."""
        ...

    def list_published(self) -> Sequence[PublishedPack]:
        """All versions of all packs."""
        ...

    def find_content(self, name: str, version: str) -> bytes | None:
        """The zip file of a version."""
        ...

    def publish(self, pack: TemplatePack, published_by: str) -> tuple[PublishedPack, bool]:
        """Keep a version for ever. True: it is new; False: the same was published before.

        ConflictError: the version holds something else. RejectedError: the pack has ``VERSIONS_MAX`` versions.
        """
        ...


class PackCatalog:
    """A ``TemplateStore`` over a ``PackStore``. Its listeners hear when something was published.

    A version that this release can't read is left out, and the log says why: another release published it.
    """

    def __init__(self, store: PackStore, now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)) -> None:
        self._store = store
        self._now = now
        self._lock = threading.RLock()
        self._change: object = None
        self._published: Mapping[str, tuple[PublishedPack, ...]] = {}
        self._newest: Mapping[str, TemplatePack] = {}
        self._read = TemplatesInMemory()
        self._unreadable: set[tuple[str, str]] = set()
        self._listeners: tuple[Callable[[], object], ...] = ()
        self._metrics = CatalogMetrics()
        self.refresh()

    def list_packs(self) -> list[TemplatePack]:
        return list(self._newest.values())

    def find_pack(self, name: str, version: str | None = None) -> TemplatePack | None:
        newest = self._newest.get(name)
        if version is None or (newest is not None and newest.version == version):
            return newest
        return self._find_version(name, version)

    def list_published(self, name: str | None = None) -> list[PublishedPack]:
        """All versions, or those of one pack: packs by their names, the newest version first."""
        published = self._published
        if name is not None:
            return list(published.get(name, ()))
        return [each for versions in published.values() for each in versions]

    def publish(self, pack: TemplatePack, published_by: str) -> tuple[PublishedPack, bool]:
        """Keep a version for ever. True: it is new; False: the same was published before.

        Raises ConflictError: the version holds something else.
        """
        found = self._store.publish(pack, published_by)
        self.refresh()
        return found

    def add_listener(self, listener: Callable[[], object]) -> None:
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def refresh(self) -> bool:
        """Look whether something was published, and tell the listeners. RetryableError: the store is away."""
        with self._lock:
            change = self._store.find_change()
            if change == self._change:
                return False
            self._take(self._store.list_published())
            self._change = change
            for listener in self._listeners:
                listener()
            return True

    @property
    def metrics(self) -> CatalogMetrics:
        return self._metrics

    def _take(self, published: Iterable[PublishedPack]) -> None:
        by_name: dict[str, list[PublishedPack]] = {}
        for each in published:
            by_name.setdefault(each.name, []).append(each)
        ordered = {
            name: tuple(sorted(by_name[name], key=lambda each: version_key(each.version), reverse=True))
            for name in sorted(by_name)
        }
        newest = {name: self._find_newest(versions) for name, versions in ordered.items()}
        count = sum(map(len, ordered.values()))
        added = count - sum(map(len, self._published.values()))
        self._published = ordered
        self._newest = {name: pack for name, pack in newest.items() if pack is not None}
        held = self._metrics
        self._metrics = replace(held, specs=count, puts=held.puts + added, changed_at=self._now())

    def _find_newest(self, versions: Sequence[PublishedPack]) -> TemplatePack | None:
        found = (self._find_version(each.name, each.version) for each in versions)
        return next((pack for pack in found if pack is not None), None)

    def _find_version(self, name: str, version: str) -> TemplatePack | None:
        if (name, version) in self._unreadable:
            return None
        known = self._read.find_pack(name, version)
        if known is not None:
            return known
        content = self._store.find_content(name, version)
        if content is None:
            return None
        try:
            return self._read.publish(read_pack_file(content))
        except RejectedError as error:
            self._unreadable.add((name, version))
            _log.warning("the version %s of the pack %s is left out: %s", version, name, error)
            return None
