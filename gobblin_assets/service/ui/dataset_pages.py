"""Pages of what was published: the list of datasets, and one dataset with its partitions."""

from typing import Final
from urllib.parse import unquote

from fastapi import APIRouter, Request, Response

from gobblin_assets.service.api.dataset_routes import read_flow_filter
from gobblin_assets.service.api.request_parts import (
    Asker,
    Parts,
    read_dataset_cursor,
    read_text_cursor,
    write_cursor,
)
from gobblin_assets.service.ui.rendering import PAGES, render, wants_fragment

dataset_pages = APIRouter(prefix=f"{PAGES}/datasets", include_in_schema=False)

_PAGE_DATASETS: Final = 50
_PAGE_PARTITIONS: Final = 50


@dataset_pages.get("")
def show_datasets(
    request: Request,
    parts: Parts,
    user: Asker,
    search: str = "",
    node: str = "",
    flow_group: str = "",
    flow_name: str = "",
    cursor: str = "",
) -> Response:
    """The datasets, or those whose URNs begin with what was searched, of a node or of a flow."""
    flow = read_flow_filter(flow_group, flow_name)
    page = parts.jobs.list_datasets(
        user,
        flow=flow,
        node=node.strip() or None,
        prefix=search.strip(),
        after=read_dataset_cursor(cursor or None),
        limit=_PAGE_DATASETS,
    )
    return render(
        request,
        "dataset_rows.html" if wants_fragment(request.headers) else "datasets.html",
        user=user,
        page=page,
        search=search,
        node=node,
        flow=flow,
        cursor=cursor,
        next=write_cursor(page.after),
    )


@dataset_pages.get("/{job_name}/{urn}")
def show_dataset(request: Request, parts: Parts, user: Asker, job_name: str, urn: str, cursor: str = "") -> Response:
    """One dataset: what is open, its watermarks, and its partitions with their last publications."""
    details = parts.jobs.get_dataset(
        user, unquote(job_name), unquote(urn), before=read_text_cursor(cursor or None), limit=_PAGE_PARTITIONS
    )
    return render(
        request,
        "dataset_parts.html" if wants_fragment(request.headers) else "dataset.html",
        user=user,
        details=details,
        dataset=details.dataset,
        cursor=cursor,
        next=write_cursor(details.before),
    )
