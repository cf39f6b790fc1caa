"""Specs of flows, and their addresses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol
from urllib.parse import quote, unquote

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.wording import CONTROLS
from gobblin_assets.service.flow_config import FlowConfig

FLOW_SCHEME: Final = "gobblin-flow"

_NAME_LENGTH_MAX: Final = 128
_DOTS: Final = frozenset({".", ".."})


class Spec(Protocol):
    """A spec, which a catalog holds by its URI."""

    @property
    def uri(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def description(self) -> str: ...


class FlowKey(NamedTuple):
    """The names by which people know a flow."""

    group: str
    name: str

    @property
    def uri(self) -> str:
        return f"{FLOW_SCHEME}:/{quote(self.group, safe='')}/{quote(self.name, safe='')}"


@dataclass(frozen=True, slots=True)
class FlowSpec:
    """A flow as it is stored.

    ``version``: "1" for the first; each change of its config counts up. ``child_specs``: flows that the flow consists
    of, then jobs, once it is compiled. ``pins``: the versions of packs by which it is compiled, by packs; of others,
    the newest.
    """

    uri: str
    version: str
    description: str
    config: FlowConfig
    template_uris: tuple[str, ...] = ()
    child_specs: tuple[Spec, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> FlowKey:
        return FlowKey(self.config.flow_group, self.config.flow_name)


def parse_flow_key(group: str, name: str) -> FlowKey:
    """RejectedError for a name that is empty, longer than 128 characters, or has control characters."""
    for field_name, text in (("flow_group", group), ("flow_name", name)):
        if not text or len(text) > _NAME_LENGTH_MAX:
            raise RejectedError(
                f"expected 1 to {_NAME_LENGTH_MAX} characters, found {len(text)}",
                field=field_name,
                hint="Choose a shorter name." if text else "Write a name.",
            )
        if text in _DOTS:
            raise RejectedError(
                f"{text!a} has another meaning in addresses", field=field_name, hint="Choose another name."
            )
        if CONTROLS.search(text):
            raise RejectedError(
                f"expected no control characters, found {text!a}", field=field_name, hint="Take them out."
            )
    return FlowKey(group, name)


def parse_flow_uri(uri: str) -> FlowKey:
    """The key of ``gobblin-flow:/<group>/<name>``, each percent-encoded. RejectedError for another text."""
    scheme, _, path = uri.partition(":/")
    group, mark, name = path.partition("/")
    if scheme != FLOW_SCHEME or not mark or "/" in name:
        raise RejectedError(
            f"expected {FLOW_SCHEME}:/<group>/<name>, found {uri[:200]!a}", field="uri", hint="Correct the URI."
        )
    return parse_flow_key(unquote(group), unquote(name))
