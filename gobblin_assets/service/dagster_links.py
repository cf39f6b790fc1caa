"""Links from a job of an execution to its run and its assets in the pages of the executor's Dagster."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from gobblin_assets.model.path_names import asset_key_of
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.state.tickets import TicketReport, TicketReportKind


@dataclass(frozen=True, slots=True)
class AssetLink:
    """A dataset that was published, and its page; None: the executor has no pages."""

    urn: str
    url: str | None


@dataclass(frozen=True, slots=True)
class DagsterRun:
    """The run of a job's last attempt in Dagster, and some datasets that it published. ``url`` None: as above."""

    run_id: str
    url: str | None
    assets: tuple[AssetLink, ...]


def link_dagster_run(job: JobName, reports: Sequence[TicketReport], ui_url: str | None) -> DagsterRun | None:
    """What these reports of one attempt tell. None: it is no run of Dagster's, or has not begun. Pure."""
    begun = [each.details for each in reports if each.kind is TicketReportKind.RUNNING]
    run_id = begun[0].get("dagster_run_id") if begun else None
    if not isinstance(run_id, str):
        return None
    base = None if ui_url is None else ui_url.rstrip("/")
    urns = dict.fromkeys(str(each.details["urn"]) for each in reports if each.kind is TicketReportKind.PUBLISHED)
    assets = tuple(AssetLink(urn, _link_asset(base, job, DatasetUrn(urn))) for urn in urns)
    return DagsterRun(run_id, None if base is None else f"{base}/runs/{quote(run_id, safe='')}", assets)


def _link_asset(base: str | None, job: JobName, urn: DatasetUrn) -> str | None:
    if base is None:
        return None
    return f"{base}/assets/{'/'.join(quote(each, safe='') for each in asset_key_of(job, urn))}"
