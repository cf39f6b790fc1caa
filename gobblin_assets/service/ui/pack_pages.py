"""Pages of packs: all packs with a form to publish one, and a version of a pack with its templates."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from fastapi import APIRouter, Request, Response

from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.service.access import User
from gobblin_assets.service.api.pack_routes import PackUpload
from gobblin_assets.service.api.problems import Problem, problem_of
from gobblin_assets.service.api.request_parts import Asker, Parts, ServedParts
from gobblin_assets.service.ui.rendering import PAGES, go_to, pack_page, render

pack_pages = APIRouter(prefix=f"{PAGES}/packs", include_in_schema=False)

_SAID: Final[Mapping[str, str]] = {
    "published": "The pack is published. Flows take it when they are changed.",
    "known": "The same was published before: nothing changed.",
}


@pack_pages.get("")
def show_packs(request: Request, parts: Parts, user: Asker) -> Response:
    """The packs that the user may use, each at its newest version."""
    return _show_packs(request, parts, user)


@pack_pages.post("")
def publish_pack_file(request: Request, parts: Parts, user: Asker, content: PackUpload) -> Response:
    """Publish the file of the form, or show what is wrong with it."""
    try:
        pack, is_new = parts.packs.publish(user, content)
    except (RejectedError, ConflictError) as error:
        return _show_packs(request, parts, user, problem_of(error))
    return go_to(pack_page(pack.published.name, pack.published.version), said="published" if is_new else "known")


@pack_pages.get("/{pack}/{version}")
def show_pack_version(request: Request, parts: Parts, user: Asker, pack: str, version: str, said: str = "") -> Response:
    """A version of a pack, and its templates that the user may use."""
    found = parts.packs.get_version(user, unquote(pack), unquote(version))
    return render(
        request,
        "pack.html",
        user=user,
        pack=found.published,
        templates=found.templates,
        versions=parts.packs.list_versions(user, unquote(pack)),
        said=_SAID.get(said, ""),
    )


def _show_packs(request: Request, parts: ServedParts, user: User, problem: Problem | None = None) -> Response:
    values: dict[str, Any] = {"packs": parts.packs.list_packs(user), "may_publish": parts.packs.may_publish(user)}
    return render(
        request, "packs.html", status=200 if problem is None else problem.status, user=user, refused=problem, **values
    )
