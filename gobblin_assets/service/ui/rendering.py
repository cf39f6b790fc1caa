"""Answers that are HTML: whole pages and their fragments, with entity tags, so that what is unchanged is not sent."""

import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from gobblin_assets import __version__
from gobblin_assets.model.executor_heartbeat import SILENT_AFTER_S
from gobblin_assets.model.wording import count_of
from gobblin_assets.service.specs import FlowKey

PAGES: Final = "/ui"

_HEADERS: Final = {
    "Cache-Control": "private, no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def flow_page(key: FlowKey, *rest: object) -> str:
    """The address of a flow's page, or of what is below it."""
    parts = [quote(key.group, safe=""), quote(key.name, safe=""), *(quote(str(each), safe="") for each in rest)]
    return f"{PAGES}/flows/{'/'.join(parts)}"


def pack_page(pack: str, version: str) -> str:
    """The address of the page of a version of a pack."""
    return f"{PAGES}/packs/{quote(pack, safe='')}/{quote(version, safe='')}"


def dataset_page(job_name: str, urn: str) -> str:
    """The address of a dataset's page."""
    return f"{PAGES}/datasets/{quote(job_name, safe='')}/{quote(urn, safe='')}"


def page_with(path: str, **parameters: object) -> str:
    """An address with parameters, without those that are None."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


class _Html(str):
    """A text that is HTML already."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def show_time(moment: dt.datetime | None) -> str:
    """An element of HTML with the moment in UTC, which the script says in the reader's words."""
    if moment is None:
        return ""
    utc = moment.astimezone(dt.UTC)
    return _Html(f'<time datetime="{utc.isoformat()}">{utc:%Y-%m-%d %H:%M:%S} UTC</time>')


def show_zoned(moment: dt.datetime) -> str:
    """The moment in its own zone."""
    return f"{moment:%Y-%m-%d %H:%M:%S %Z}"


def show_bytes(count: int | None) -> str:
    """Such as 3.2 MiB."""
    if count is None:
        return ""
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.0f} B" if units[0] == "B" else f"{size:.1f} {units[0]}"


def show_span(begin: dt.datetime | None, end: dt.datetime | None) -> str:
    """The time from begin to end, in words of a status line."""
    if begin is None or end is None:
        return ""
    seconds = max(0.0, (end - begin).total_seconds())
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    return f"{minutes} min {rest_s} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def show_ago(seconds: float) -> str:
    """Such as "just now": a page that nobody loads anew says nothing that grows old within seconds."""
    if seconds < SILENT_AFTER_S:
        return "just now"
    minutes = round(seconds / 60)
    return (
        f"{seconds:.0f} s ago" if minutes < 2 else f"{minutes} min ago" if minutes < 120 else f"{minutes // 60} h ago"
    )


def _make_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("gobblin_assets.service.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(flow_page=flow_page, dataset_page=dataset_page, pack_page=pack_page)
    environment.globals.update(page_with=page_with, version=__version__)
    environment.filters.update(
        time=show_time,
        zoned=show_zoned,
        size=show_bytes,
        number=lambda value: "" if value is None else f"{value:,}",
        pretty=lambda value: json.dumps(value, indent=2, default=str),
    )
    environment.globals.update(span=show_span, count_of=count_of, heard_ago=show_ago)
    return environment


_ENVIRONMENT: Final = _make_environment()


def render(request: Request, page: str, /, *, status: int = 200, **values: Any) -> Response:
    """The page or the fragment; 304 where the browser has it as it is."""
    asks = request.app.state.parts.asks_for_tokens
    html = _ENVIRONMENT.get_template(page).render(path=request.scope["path"], asks_for_tokens=asks, **values)
    etag = f'"{hashlib.sha256(html.encode()).hexdigest()[:32]}"'
    headers = {**_HEADERS, "ETag": etag}
    if status == 200 and request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(html, status_code=status, headers=headers, media_type="text/html")


def go_to(path: str, **parameters: object) -> RedirectResponse:
    """To the page that shows what a form did: a browser that is reloaded does not send the form again."""
    return RedirectResponse(page_with(path, **parameters), status_code=303)


def wants_fragment(headers: Mapping[str, str]) -> bool:
    return headers.get("x-fragment") == "1"
