"""The application of the REST API: its routes, how errors are answered, its OpenAPI document."""

import logging
import uuid
from collections.abc import Callable
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from gobblin_assets import __version__
from gobblin_assets.errors import GobblinError
from gobblin_assets.service.api.dataset_routes import dataset_routes
from gobblin_assets.service.api.flow_routes import flow_routes
from gobblin_assets.service.api.pack_routes import pack_routes
from gobblin_assets.service.api.probe_routes import probe_routes
from gobblin_assets.service.api.problems import PROBLEM_TYPE, Problem, list_headers, problem_of
from gobblin_assets.service.api.representations import ProblemBody
from gobblin_assets.service.api.request_parts import ServedParts
from gobblin_assets.service.api.restli_codec import write_error
from gobblin_assets.service.api.restli_routes import FLOW_RESOURCES, STATUS_RESOURCES, answer_restli, restli_routes
from gobblin_assets.service.api.service_routes import service_routes
from gobblin_assets.service.flow_config import FlowConfig

ProblemPage = Callable[[Request, Problem], Response]
"""Shows a problem to a person whose browser asked."""

_RESTLI_RESOURCES: Final = frozenset({*FLOW_RESOURCES, *STATUS_RESOURCES})

_log = logging.getLogger(__name__)


def make_api(parts: ServedParts) -> FastAPI:
    """The application, for pages to be added to. ``app.state.problem_page``: a ProblemPage, or None."""
    app = FastAPI(
        title="gobblin-assets service",
        version=__version__,
        description="Flows: what data shall be where.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.parts = parts
    app.state.problem_page = None
    app.include_router(flow_routes)
    app.include_router(probe_routes)
    app.include_router(dataset_routes)
    app.include_router(service_routes)
    app.include_router(pack_routes)
    app.include_router(restli_routes)
    app.add_exception_handler(GobblinError, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_error)
    app.add_exception_handler(HTTPException, _answer_error)
    app.add_exception_handler(Exception, _answer_error)
    app.openapi = lambda: _describe(app)  # type: ignore[method-assign]  # FastAPI's own way to change the document
    return app


def problem_of_request(request: Request, error: Exception) -> Problem:
    """The problem that an error of any kind is answered as."""
    match error:
        case GobblinError():
            return problem_of(error, has_condition="if-match" in request.headers)
        case RequestValidationError():
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"][1:])
            return Problem(422, str(first["msg"]), where or "body", "Correct it.", "RejectedError")
        case HTTPException(status_code=404):
            return Problem(
                404, f"nothing is at {request.url.path[:300]}", "path", "GET /api/v1/openapi.json lists all."
            )
        case HTTPException(status_code=405):
            return Problem(
                405, f"{request.method} is not possible here", "method", "GET /api/v1/openapi.json lists all."
            )
        case HTTPException():
            return Problem(error.status_code, str(error.detail))
        case _:
            number = uuid.uuid4()
            # The server logs the traceback.
            _log.error("request %s: %s %s failed", number, request.method, request.url.path)
            return Problem(500, f"the service failed; its log says why, at {number}")


def _answer_error(request: Request, error: Exception) -> Response:
    problem = problem_of_request(request, error)
    headers = list_headers(problem)
    if isinstance(error, HTTPException) and error.headers:
        headers.update(error.headers)
    first = request.scope["path"].removeprefix("/").partition("/")[0]
    if first in _RESTLI_RESOURCES:
        return answer_restli(
            write_error(problem), status=problem.status, headers={"X-RestLi-Error-Response": "true", **headers}
        )
    page: ProblemPage | None = request.app.state.problem_page
    if first != "api" and page is not None:
        answer = page(request, problem)
        answer.headers.update(headers)
        return answer
    return JSONResponse(problem.to_json(), status_code=problem.status, headers=headers, media_type=PROBLEM_TYPE)


def _describe(app: FastAPI) -> dict[str, Any]:
    """OpenAPI 3.1, with the bodies that routes read themselves, and with the one form of all errors."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schemas = document["components"]["schemas"]
        for model in (ProblemBody, FlowConfig):
            schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(schema.pop("$defs", {}))
            schemas[model.__name__] = schema
        content = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}
        for path in document["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
                operation["responses"]["default"] = {"description": "A problem.", "content": content}
        app.openapi_schema = document
    return app.openapi_schema
