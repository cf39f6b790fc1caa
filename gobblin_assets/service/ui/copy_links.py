"""Links from a flow's page to the form that copies the datasets it publishes, filled in as far as they are known."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlencode

from gobblin_assets.service.job_plan import FlowPlan, PlannedJob
from gobblin_assets.service.published_datasets import list_published
from gobblin_assets.service.topology import Format
from gobblin_assets.service.ui.rendering import PAGES

DATASETS_PER_LINK_MAX: Final = 50
"""An address of more would be too long for some servers between."""

_TEMPLATE: Final = "FS:///dataset-to-tree.template"


class CopyLink(NamedTuple):
    """``node``: where the datasets are."""

    node: str
    href: str


def link_copies(plan: FlowPlan | None) -> Sequence[CopyLink]:
    """A link for each job of the plan that publishes datasets, and not too many."""
    return [] if plan is None else list(_list_links(plan))


def _list_links(plan: FlowPlan) -> Iterator[CopyLink]:
    for job in plan.jobs:
        urns = list_published(job) if job.target.format is Format.DATASET else ()
        if 0 < len(urns) <= DATASETS_PER_LINK_MAX:
            yield CopyLink(job.target.node, f"{PAGES}/new?{urlencode(list(_list_values(job, urns)))}")


def _list_values(job: PlannedJob, urns: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield "template", _TEMPLATE
    yield "source", job.target.node
    for number, urn in enumerate(urns):
        yield f"datasets[{number}].dataset", urn
        yield f"datasets[{number}].job", job.job_name
