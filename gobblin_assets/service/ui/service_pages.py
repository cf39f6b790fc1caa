"""Pages of what flows are made of: topology, templates; and how pages and problems are put into the application."""

from http import HTTPStatus
from importlib.resources import files
from typing import Final

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import RedirectResponse

from gobblin_assets.errors import GobblinError
from gobblin_assets.service.access import User
from gobblin_assets.service.api.problems import Problem
from gobblin_assets.service.api.request_parts import (
    SESSION_COOKIE,
    Asker,
    Parts,
    ServedParts,
    get_user,
)
from gobblin_assets.service.api.service_routes import find_nodes, find_templates
from gobblin_assets.service.ui.dataset_pages import dataset_pages
from gobblin_assets.service.ui.flow_pages import flow_pages
from gobblin_assets.service.ui.forms import Form
from gobblin_assets.service.ui.pack_pages import pack_pages
from gobblin_assets.service.ui.rendering import PAGES, go_to, render
from gobblin_assets.service.ui.wizard_pages import wizard_pages

service_pages = APIRouter(include_in_schema=False)

_STATIC: Final = {"service.js": "text/javascript", "service.css": "text/css", "service.svg": "image/svg+xml"}
_NOBODY: Final = User("", frozenset())


def add_pages(app: FastAPI) -> None:
    app.include_router(service_pages)
    app.include_router(wizard_pages)
    app.include_router(flow_pages)
    app.include_router(pack_pages)
    app.include_router(dataset_pages)
    app.state.problem_page = show_problem


@service_pages.get("/")
def go_home() -> Response:
    return RedirectResponse(f"{PAGES}/flows", status_code=307)


@service_pages.get(f"{PAGES}/topology")
def show_topology(request: Request, parts: Parts, user: Asker) -> Response:
    """The nodes and executors that the user may use."""
    return render(
        request,
        "topology.html",
        user=user,
        nodes=find_nodes(parts, user),
        executors=parts.executors.list_shown(user),
        logs=parts.logs.list_shown(user),
        may_drain=parts.logs.may_drain(user),
        topology=parts.topologies.topology,
    )


@service_pages.post(f"{PAGES}/logs/{{log}}/drain")
def drain_log_by_page(parts: Parts, user: Asker, log: str) -> Response:
    parts.logs.drain(user, log)
    return go_to(f"{PAGES}/topology")


@service_pages.post(f"{PAGES}/logs/{{log}}/resume")
def resume_log_by_page(parts: Parts, user: Asker, log: str) -> Response:
    parts.logs.resume(user, log)
    return go_to(f"{PAGES}/topology")


@service_pages.get(f"{PAGES}/templates")
def show_templates(request: Request, parts: Parts, user: Asker) -> Response:
    """The job templates that the user may use."""
    return render(request, "templates.html", user=user, templates=find_templates(parts, user))


@service_pages.get(f"{PAGES}/login")
def show_login(request: Request, parts: Parts) -> Response:
    return render(request, "login.html", user=_NOBODY, refused=None, asks=parts.asks_for_tokens)


@service_pages.post(f"{PAGES}/login")
def log_in(parts: Parts, form: Form) -> Response:
    """Keep the token in a cookie that scripts can't read and other sites don't send."""
    token = form.text("token")
    parts.identify(token)
    answer = go_to(f"{PAGES}/flows")
    answer.set_cookie(SESSION_COOKIE, token, httponly=True, samesite="strict")
    return answer


@service_pages.post(f"{PAGES}/logout")
def log_out() -> Response:
    answer = go_to(f"{PAGES}/login")
    answer.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
    return answer


@service_pages.get(f"{PAGES}/static/{{name}}")
def send_static(request: Request, name: str) -> Response:
    """The script and the style sheet of this release."""
    if name not in _STATIC:
        return show_problem(request, Problem(404, f"there is no file {name[:100]!a}", "path"))
    body = (files("gobblin_assets.service.ui") / "static" / name).read_bytes()
    # Pages ask for the files of their release, so that a new release is seen at once.
    return Response(body, media_type=_STATIC[name], headers={"Cache-Control": "max-age=86400"})


def show_problem(request: Request, problem: Problem) -> Response:
    """A page for a person. Who is not known is asked for a token."""
    parts: ServedParts = request.app.state.parts
    if problem.status == HTTPStatus.UNAUTHORIZED:
        had_token = SESSION_COOKIE in request.cookies or request.method == "POST"
        return render(
            request,
            "login.html",
            status=problem.status,
            user=_NOBODY,
            refused=problem if had_token else None,
            asks=True,
        )
    try:
        user = get_user(request, parts)
    except GobblinError:
        user = _NOBODY
    return render(request, "problem.html", status=problem.status, user=user, shown=problem)
