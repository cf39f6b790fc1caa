"""Pins: the versions of packs that a flow was compiled with. Its launches use them until the flow is changed.

A pin is of a pack whose templates the flow's plan uses without naming a version. So what is published later changes no
flow that is there. A template that the flow names with its version needs no pin.
"""

from collections.abc import Mapping, Sequence

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.job_plan import FlowPlan, NewerPack
from gobblin_assets.service.template_store import TemplatePack, TemplateStore, find_template_uri


def plan_pins(plan: FlowPlan, named: Sequence[str]) -> dict[str, str]:
    """The versions of packs that the plan uses, by packs. ``named``: the URIs of templates that the flow names."""
    pinned_by_name = {uri for uri in map(find_template_uri, named) if uri is not None and uri.version is not None}
    used = {uri for job in plan.jobs if (uri := find_template_uri(job.template_uri)) is not None}
    return {uri.pack: uri.version for uri in sorted(used - pinned_by_name) if uri.version is not None}


def get_pinned_pack(store: TemplateStore, name: str, version: str) -> TemplatePack:
    """RejectedError if the store no longer has the version, or can't read it."""
    found = store.find_pack(name, version)
    if found is None:
        raise RejectedError(
            f"the flow has pinned the version {version} of the pack {name}, which this service does not have",
            field="template_uris",
            hint="Ask for :repin, or change the flow: both take the newest version.",
        )
    return found


def list_newer(store: TemplateStore, pins: Mapping[str, str]) -> tuple[NewerPack, ...]:
    """The packs of which a newer version is there than the pinned one."""
    found = ((name, version, store.find_pack(name)) for name, version in sorted(pins.items()))
    return tuple(
        NewerPack(name, version, newest.version)
        for name, version, newest in found
        if newest is not None and newest.version != version
    )
