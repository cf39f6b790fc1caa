"""Sinks to which a job sends the events of its publications.

A sink's secrets are in environment variables whose names begin with ``GOBBLIN_EVENTS_``. Others are refused: else the
author of a job could send the deployment's passwords anywhere.
"""

import difflib
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from gobblin_assets.spec.spec_model import SpecModel, refused

VARIABLE_PREFIX: Final = "GOBBLIN_EVENTS_"

_OF_JSONL: Final = frozenset({"path"})
_OF_WEBHOOK: Final = frozenset({"url", "url_env", "token_env"})
_OPTIONS_BY_KIND: Final = {"jsonl": _OF_JSONL, "webhook": _OF_WEBHOOK}


class EventSinkSpec(SpecModel):
    """One sink of events. A sink that is new is told what is published from then on."""

    kind: str = Field(description="`jsonl`, `webhook`, or a kind that a package or a program registered.")
    name: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="By which the log knows what it was told; default: the kind.",
    )
    files: bool = Field(True, description="Whether each file has an event, or only the datasets.")
    path: str | None = Field(None, description="jsonl: the file to append to, an absolute path.")
    url: str | None = Field(None, description="webhook: where batches of events are posted. No secret belongs here.")
    url_env: str | None = Field(None, description="webhook: the variable GOBBLIN_EVENTS_… that holds the URL instead.")
    token_env: str | None = Field(None, description="webhook: the variable GOBBLIN_EVENTS_… that holds a bearer token.")
    options: dict[str, Any] = Field(default_factory=dict, description="What a registered kind takes.")

    @property
    def known_as(self) -> str:
        return self.name or self.kind

    @model_validator(mode="after")
    def _fits_its_kind(self) -> "EventSinkSpec":
        given = {name for name in _OF_JSONL | _OF_WEBHOOK if getattr(self, name) is not None}
        allowed = _OPTIONS_BY_KIND.get(self.kind, frozenset())
        if given and not allowed:
            close = difflib.get_close_matches(self.kind, _OPTIONS_BY_KIND, n=1)
            raise refused(
                f"expected {' or '.join(_OPTIONS_BY_KIND)} where {min(given)} is written, found {self.kind!a}",
                option="kind",
                hint=f"Did you mean {close[0]!r}?" if close else "What another kind takes belongs under `options`.",
            )
        if given - allowed:
            name = min(given - allowed)
            raise refused(f"a sink of the kind {self.kind} has no {name}", option=name, hint="Take it out.")
        if self.options and allowed:
            raise refused(f"a sink of the kind {self.kind} has no options", option="options", hint="Take them out.")
        if self.kind == "jsonl" and (self.path is None or not self.path.startswith("/")):
            raise refused("expected an absolute path of a file", option="path", hint="Write it from / on.")
        if self.kind == "webhook":
            self._check_webhook()
        return self

    def _check_webhook(self) -> None:
        if (self.url is None) == (self.url_env is None):
            found = "neither" if self.url is None else "both"
            raise refused(f"expected either `url` or `url_env`, found {found}", option="url", hint="Write one of them.")
        for name in ("url_env", "token_env"):
            variable = getattr(self, name)
            if variable is not None and not variable.startswith(VARIABLE_PREFIX):
                # Not shown: it may be the secret itself.
                raise refused(
                    f"expected the name of a variable, which begins with {VARIABLE_PREFIX}; found something else",
                    option=name,
                    hint="Put the secret into a variable of such a name: others may hold what the sink must not get.",
                )
        if self.url is not None and not _is_plain(self.url):
            # Not shown: it may hold a login.
            raise refused(
                "expected an http:// or https:// URL without a login", option="url", hint="Put secrets into `url_env`."
            )


def _is_plain(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc


def require_distinct_names(sinks: Sequence[EventSinkSpec]) -> None:
    """``refused`` for two sinks of one name: the log would take them for one."""
    names = [each.known_as for each in sinks]
    for name in names:
        if names.count(name) > 1:
            raise refused(f"two sinks are called {name!r}", hint="Give each a `name` of its own.")
