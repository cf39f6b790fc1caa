"""The kinds of steps that this process knows: kinds of the destinations, of packages, and kinds that code registered.

The table of the destinations' kinds is above this package (``destinations.step_table``), so it is found by its name. A
kind is imported when it is first needed.

A package offers a kind by an entry point of the group ``gobblin_assets.steps``. The entry point's name is the kind's
name, its value the ``StepKind``:

    [project.entry-points."gobblin_assets.steps"]
    "gobblin_latest_pointer.latest" = "gobblin_latest_pointer:LATEST"

So every process in whose environment the package is installed knows the kind: runs, sensors, recovery and the command
line. A package is imported when the log first holds a step of its kind. ``register_step`` makes a kind known to one
process.

The log keeps which package provided a kind. A sequence whose kind is unknown is BLOCKED, and its error names the
package.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from itertools import chain
from typing import Any, Final

from gobblin_assets.commit.step_world import register_port
from gobblin_assets.commit.steps import CommitStep, StepKind, StepRow
from gobblin_assets.errors import ConflictError, GobblinError, RejectedError
from gobblin_assets.extensions import package_of

GROUP: Final = "gobblin_assets.steps"

Provider = Mapping[str, str]
"""The provider of a kind: ``{"package": …}``, or ``{"module": …}`` if code registered the kind."""

_OF_DESTINATIONS: Final = "gobblin_assets.destinations.step_table"
"""The table of built-in kinds. From a table, so that a source tree that is not installed knows them too."""

_kinds: Final[dict[str, StepKind]] = {}


class StepKindMissingError(ConflictError):
    """The log holds a step of a kind that this process can't load. Repeating helps only after it is installed."""


@dataclass(frozen=True, slots=True)
class JsonCodec:
    """A step as JSON: ``write`` gives plain values, from which ``read`` rebuilds the step."""

    write: Callable[[Any], Mapping[str, object]]
    read: Callable[[Mapping[str, Any]], CommitStep]

    def to_columns(self, steps: Sequence[Any], first: int) -> Sequence[Sequence[object]]:
        """A row with the JSON, then one for each published file: readers need no package to find these."""
        rows = chain.from_iterable(self._rows_of(number, step) for number, step in enumerate(steps, first))
        return list(zip(*rows, strict=True))

    def _rows_of(self, number: int, step: CommitStep) -> Iterator[tuple[object, ...]]:
        yield (number, *(None,) * 9, json.dumps(self.write(step), sort_keys=True))
        for path, i, row_count in step.published():
            directory, _, name = path.rpartition("/")
            yield (number, None, None, directory, name, i.size_bytes, i.inode, i.mtime_ns, i.tag, row_count, None)

    def from_rows(self, rows: Iterable[StepRow]) -> Iterator[CommitStep]:
        return (self.read(json.loads(row[-1])) for row in rows if row[-1] is not None)


def register_step(kind: StepKind) -> None:
    """Make a kind known to this process, with its openers. Another kind of the same name: RejectedError."""
    if is_built_in(kind.name):
        get_kind(kind.name)
    _register(kind)


def _register(kind: StepKind) -> None:
    if _kinds.setdefault(kind.name, kind) is not kind:
        raise RejectedError(
            f"the step kind {kind.name!r} is already registered",
            field="kind",
            hint="Give your kind a name of its own, such as <package>.<kind>.",
        )
    for port, opener in kind.opens.items():
        register_port(port, opener)


def get_kind(name: str, provider: Provider | None = None) -> StepKind:
    """The kind of this name, loaded from its package if necessary. ``provider``: the provider as the log has it.

    StepKindMissingError if there is no such kind; its hint names the package to install.
    """
    if name not in _kinds:
        _load(name, provider or {})
    return _kinds[name]


def is_built_in(name: str) -> bool:
    """Whether every process knows the kind, without any other package."""
    return _find_place(name) is not None


def find_built_in(name: str) -> StepKind | None:
    """The built-in kind of this name, or None."""
    return get_kind(name) if is_built_in(name) else None


def find_provider(name: str) -> Provider | None:
    """The provider of a known kind; None for built-in kinds."""
    return None if is_built_in(name) else _provider_of(name)


@cache
def _provider_of(name: str) -> Provider:
    for offer in _find_offers(name):
        if offer.dist is not None:
            return {"package": offer.dist.name}
    codec = _kinds[name].codec
    return {"module": str(getattr(codec, "read", codec).__module__)}


@cache
def _find_place(name: str) -> str | None:
    found: str | None = import_module(_OF_DESTINATIONS).find_step_place(name)
    return found


def _find_offers(name: str) -> list[EntryPoint]:
    return list(entry_points(group=GROUP, name=name))


def _load(name: str, provider: Provider) -> None:
    if (place := _find_place(name)) is not None:
        module, _, attribute = place.partition(":")
        found = getattr(import_module(module), attribute)
        for each in (found,) if isinstance(found, StepKind) else found:
            _register(each)
        return
    offers = _find_offers(name)
    if len({offer.value for offer in offers}) != 1:
        raise _missing(name, provider, offers)
    try:
        kind = offers[0].load()
    except Exception as error:
        raise StepKindMissingError(
            f"the step kind {name!r} of the package {package_of(offers[0])!r} can't be loaded: {type(error).__name__}",
            hint=f"Look at `python -c 'import {offers[0].module}'`, correct it, then resume the sequence.",
            kind=name,
        ) from error
    if not isinstance(kind, StepKind) or kind.name != name:
        raise StepKindMissingError(
            f"the entry point {name!r} of the package {package_of(offers[0])!r} is no StepKind of that name",
            hint=f"Let {offers[0].value} be a StepKind({name!r}, …).",
            kind=name,
        )
    try:
        register_step(kind)
    except GobblinError as error:
        raise StepKindMissingError(error.message, hint=error.hint, kind=name) from error


def _missing(name: str, provider: Provider, offers: Sequence[EntryPoint]) -> StepKindMissingError:
    if offers:
        packages = ", ".join(sorted(package_of(offer) for offer in offers))
        return StepKindMissingError(
            f"the step kind {name!r} is offered by several packages: {packages}",
            hint="Uninstall all but one of them, then resume the sequence.",
            kind=name,
        )
    if "package" in provider:
        fix = f"Install the package {provider['package']!r}"
    elif "module" in provider:
        fix = f"Import the module {provider['module']!r}, which registers it, or give it an entry point"
    else:
        fix = "Install the package that has this kind"
    return StepKindMissingError(
        f"the log holds a step of the kind {name!r}, which no package of this environment has",
        hint=f"{fix} (entry point {name!r} of the group {GROUP!r}), in every process that uses this log; then resume "
        "the sequence.",
        kind=name,
    )
