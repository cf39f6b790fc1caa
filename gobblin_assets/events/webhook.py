"""A sink that posts batches of events: ``{"events": [...]}``; any 2xx answer says that the receiver has them.

The URL and the token may be secrets. So neither is ever a part of an error or a line, except the host of a URL that the
job itself names.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from urllib3.exceptions import HTTPError, LocationValueError

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.events.sinks import Event
from gobblin_assets.events.timed_request import post
from gobblin_assets.spec.job_options import EventSinkSpec

TRIES_MAX: Final = 2
TRY_S_MAX: Final = 15.0
"""Of one try, from the connection to the end of the answer's headers."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """``label``: what errors call it."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    label: str

    def send(self, events: Sequence[Event]) -> None:
        body = json.dumps({"events": list(events)}).encode()
        said = "no answer"
        for _try in range(TRIES_MAX):
            try:
                status = post(self.url, body, self.headers, whole_s_max=TRY_S_MAX)
            except LocationValueError:
                raise _is_no_url(self.label) from None
            except HTTPError as error:
                # Without its text, which has the URL.
                said = type(error).__name__
                continue
            if 200 <= status < 300:
                return
            said = f"status {status}"
            if status < 500:
                break
        raise RetryableError(f"{self.label} does not take events ({said})", hint="Look at the receiver.")


def open_webhook(spec: EventSinkSpec) -> Webhook:
    """RejectedError for a variable that is not set."""
    url = spec.url if spec.url_env is None else _read(spec.url_env, "url_env")
    token = None if spec.token_env is None else _read(spec.token_env, "token_env")
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    label = f"the webhook of {spec.url_env}" if spec.url_env else f"the webhook at {urlsplit(str(url)).hostname}"
    if not _is_url(str(url)):
        raise _is_no_url(label)
    return Webhook(str(url), headers, label)


def _read(variable: str, option: str) -> str:
    found = os.environ.get(variable, "").strip()
    if not found:
        raise RejectedError(f"the environment variable {variable} is not set", field=f"events.{option}", hint="Set it.")
    if not found.isascii() or not found.isprintable() or " " in found:
        raise RejectedError(
            f"the environment variable {variable} has a character that no request can carry",
            field=f"events.{option}",
            hint="Set it to printable ASCII characters without spaces.",
        )
    return found


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _is_no_url(label: str) -> RejectedError:
    return RejectedError(f"{label} is no URL", field="events.url", hint="Write an http:// or https:// URL.")
