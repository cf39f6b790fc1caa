"""Extensions of packages by entry points: kinds of sources, destinations, and file systems.

The name of an entry point is the word that people write in a job; its value is the object:

    [project.entry-points."gobblin_assets.sources"]
    csv_folder = "gobblin_csv_folder:CSV_FOLDER"

So every process in whose environment the package is installed knows the object. A package is imported when its object
is first needed. Kinds of commit steps have a registry of their own, ``commit.step_kinds``: the log outlives packages,
and keeps which package provided a kind.
"""

import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from gobblin_assets.errors import RejectedError

_Offered = TypeVar("_Offered")


@dataclass(slots=True)
class Extensions(Generic[_Offered]):
    """The offers of one ``group``. ``noun``: what errors call one; ``option``: where people write its name.

    ``built_in``: ours by name, as ``module:attribute``, imported like a package's. From a table, so that a source tree
    that is not installed has them too. ``accepts``: whether an object is of the group's type. ``meant``: other words
    for names, in small letters, each with the name that people mean by it.
    """

    group: str
    noun: str
    option: str
    accepts: Callable[[object], bool]
    built_in: Mapping[str, str] = field(default_factory=dict)
    meant: Mapping[str, str] = field(default_factory=dict)
    _known: dict[str, _Offered] = field(default_factory=dict)

    def register(self, name: str, offered: _Offered) -> None:
        """Make an object known to this process only. RejectedError if the name is registered already."""
        if name in self.built_in or name in self._known:
            raise RejectedError(
                f"expected a new {self.noun}, found {name!r}, which is registered",
                field=self.option,
                hint=f"Known: {', '.join(self.list_names())}.",
            )
        self._known[name] = offered

    def list_names(self) -> list[str]:
        """All names that this process knows, sorted."""
        return sorted({*self.built_in, *self._known, *(offer.name for offer in self._find_offers())})

    def has(self, name: str) -> bool:
        """Whether there is one, loaded or not."""
        return name in self.built_in or name in self._known or bool(self._find_offers(name))

    def get(self, name: str) -> _Offered:
        """The object. RejectedError names the known names, or the package whose object can't be used."""
        if name not in self._known:
            self._known[name] = self._load(name)
        return self._known[name]

    def _load(self, name: str) -> _Offered:
        if name in self.built_in:
            module, _, attribute = self.built_in[name].partition(":")
            found: _Offered = getattr(import_module(module), attribute)
            return found
        offers = self._find_offers(name)
        if not offers:
            raise RejectedError(
                f"expected a {self.noun} of {', '.join(self.list_names())}; found {name!a}",
                field=self.option,
                hint=self._guess(name),
            )
        if len({offer.value for offer in offers}) > 1:
            packages = ", ".join(sorted(map(package_of, offers)))
            raise RejectedError(
                f"the {self.noun} {name!a} is offered by several packages: {packages}",
                field=self.option,
                hint="Uninstall all but one of them.",
            )
        return self._open(offers[0])

    def _guess(self, name: str) -> str:
        meant = self.meant.get(name.lower()) or " or ".join(difflib.get_close_matches(name, self.list_names(), n=2))
        if meant:
            return f"Did you mean {meant}?"
        return f"Correct it, or install the package that offers it (entry point of the group {self.group})."

    def _find_offers(self, name: str | None = None) -> list[EntryPoint]:
        offers = _list_offers(self.group, tuple(sys.path))
        return [offer for offer in offers if name in (None, offer.name)]

    def _open(self, offer: EntryPoint) -> _Offered:
        try:
            found = offer.load()
        except Exception as error:
            raise RejectedError(
                f"the {self.noun} {offer.name!a} of the package {package_of(offer)!r} can't be loaded: "
                f"{type(error).__name__}",
                field=self.option,
                hint=f"Look at `python -c 'import {offer.module}'`, and correct it.",
            ) from error
        if not self.accepts(found):
            raise RejectedError(
                f"the entry point {offer.name!a} of the package {package_of(offer)!r} is no {self.noun}",
                field=self.option,
                hint=f"Look at {offer.value}: it is of the type {type(found).__name__}.",
            )
        opened: _Offered = found
        return opened


@cache
def _list_offers(group: str, path: tuple[str, ...]) -> Sequence[EntryPoint]:  # noqa: ARG001  where packages are looked for
    """The entry points. A search takes time for each installed package, so a new one is made only for a new path."""
    return list(entry_points(group=group))


def package_of(offer: EntryPoint) -> str:
    """The name of the package that offers it."""
    return "?" if offer.dist is None else offer.dist.name
