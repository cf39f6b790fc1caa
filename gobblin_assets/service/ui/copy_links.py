"""Links from a flow's page to the form that copies the datasets it publishes, filled in as far as they are known."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.job_plan import FlowPlan, PlannedJob
from gobblin_assets.service.published_datasets import list_published_urns
from gobblin_assets.service.topology import Format
from gobblin_assets.service.ui.rendering import PAGES

DATASETS_PER_LINK_MAX: Final = 50
"""An address of more would be too long for some servers between."""

_TEMPLATE: Final = "FS:///dataset-to-tree.template"


def link_copies(plan: FlowPlan | None) -> Mapping[str, str]:
    """The addresses, by the node at which datasets are. A job that publishes too many has none."""
    return {} if plan is None else dict(_list_links(plan))


def _list_links(plan: FlowPlan) -> Iterator[tuple[str, str]]:
    for job in plan.jobs:
        urns = _list_urns(job) if job.target.format is Format.DATASET else ()
        if 0 < len(urns) <= DATASETS_PER_LINK_MAX:
            yield job.target.node, f"{PAGES}/new?{urlencode(list(_list_values(job, urns)))}"


def _list_urns(job: PlannedJob) -> Sequence[str]:
    """None of a job that is told its datasets only when it runs, such as one that finds its tables itself."""
    try:
        return list_published_urns(job)
    except RejectedError:
        return ()


def _list_values(job: PlannedJob, urns: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield "template", _TEMPLATE
    yield "source", job.target.node
    for number, urn in enumerate(urns):
        yield f"datasets[{number}].dataset", urn
        yield f"datasets[{number}].job", job.job_name
