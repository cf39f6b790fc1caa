"""Routes of ``/api/v1`` for packs of job templates and for the templates in them."""

from typing import Annotated, Any, Final
from urllib.parse import quote, unquote

from fastapi import APIRouter, Depends, Path, Request, Response
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from gobblin_assets.service.api.problems import MalformedRequestError
from gobblin_assets.service.api.representations import (
    PackBody,
    PublishedBody,
    TemplateBody,
    show_pack,
    show_published,
    show_template,
)
from gobblin_assets.service.api.request_parts import Asker, Parts
from gobblin_assets.service.api.service_routes import find_templates, get_visible_template

PACKS_PATH: Final = "/api/v1/packs"
PACK_FIELD: Final = "pack"
"""The field of a form that has the file."""

pack_routes = APIRouter(prefix="/api/v1", tags=["packs"])

_FORM: Final = "multipart/form-data"
_ZIP: Final = {"type": "string", "format": "binary"}
_UPLOAD: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/zip": {"schema": _ZIP},
            _FORM: {"schema": {"type": "object", "required": [PACK_FIELD], "properties": {PACK_FIELD: _ZIP}}},
        },
    }
}
_FIELDS_MAX: Final = 10


async def read_pack_upload(request: Request) -> bytes:
    """The zip file: the body, or the file of a form. MalformedRequestError: the form has none."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        return await request.body()
    try:
        async with request.form(max_files=1, max_fields=_FIELDS_MAX) as form:
            file = form.get(PACK_FIELD)
            if isinstance(file, UploadFile):
                return await file.read()
    except HTTPException as error:
        raise MalformedRequestError(
            f"the form can't be read: {error.detail}", field="body", hint="Send it again, with one file."
        ) from None
    raise MalformedRequestError("expected a file", field=PACK_FIELD, hint="Choose a zip file.")


PackUpload = Annotated[bytes, Depends(read_pack_upload)]


@pack_routes.get("/packs")
def list_packs(parts: Parts, user: Asker) -> list[PackBody]:
    """List packs, each at its newest version, with the templates that the user may use."""
    return [show_pack(each) for each in parts.packs.list_packs(user)]


@pack_routes.post("/packs", status_code=201, openapi_extra=_UPLOAD, responses={200: {"model": PackBody}})
def publish_pack(parts: Parts, user: Asker, content: PackUpload, response: Response) -> PackBody:
    """Publish a pack: a zip file of pack.yaml and templates. The same again changes nothing, and is answered by 200."""
    pack, is_new = parts.packs.publish(user, content)
    name, version = pack.published.name, pack.published.version
    response.status_code = 201 if is_new else 200
    response.headers["Location"] = f"{PACKS_PATH}/{quote(name, safe='')}/versions/{quote(version, safe='')}"
    return show_pack(pack)


@pack_routes.get("/packs/{pack}")
def list_pack_versions(parts: Parts, user: Asker, pack: str) -> list[PublishedBody]:
    """List the versions of a pack, the newest first."""
    return [show_published(each) for each in parts.packs.list_versions(user, unquote(pack))]


@pack_routes.get("/packs/{pack}/versions/{version}")
def get_pack_version(parts: Parts, user: Asker, pack: str, version: str) -> PackBody:
    """Get a version of a pack, with the templates that the user may use."""
    return show_pack(parts.packs.get_version(user, unquote(pack), unquote(version)))


@pack_routes.get("/templates")
def list_templates(parts: Parts, user: Asker) -> list[TemplateBody]:
    """List the job templates that the user may use, of the newest versions of packs."""
    return [show_template(each) for each in find_templates(parts, user)]


@pack_routes.get("/templates/{address:path}")
def get_template_at(
    parts: Parts,
    user: Asker,
    address: Annotated[str, Path(description="The template's URI without FS:///, such as sales@1/orders.template.")],
) -> TemplateBody:
    """Get a job template, with the JSON Schema of its parameters."""
    return show_template(get_visible_template(parts, user, f"FS:///{unquote(address)}"))
