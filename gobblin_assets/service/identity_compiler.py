"""The compiler ``identity``: a flow names its one template, and becomes one job."""

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.flow_request import FlowRequest
from gobblin_assets.service.multi_hop_compiler import MultiHopCompiler
from gobblin_assets.service.routes import RouteMap
from gobblin_assets.service.specs import FlowSpec


class IdentityCompiler(MultiHopCompiler):
    """Compiles flows that name one template, whose nodes are the flow's or the template's own."""

    hops_max = 1

    def read(self, spec: FlowSpec, groups: frozenset[str]) -> tuple[RouteMap, FlowRequest]:
        named = spec.template_uris or spec.config.template_uris
        if len(named) != 1:
            raise RejectedError(
                f"expected one template, found {len(named) or 'none'}",
                field="template_uris",
                hint="Name the template whose job the flow is, or let the compiler multi_hop find it.",
            )
        if len(spec.config.destinations) > 1:
            raise RejectedError(
                f"expected one node, found {len(spec.config.destinations)}",
                field="destinations",
                hint="One job publishes to one node: make a flow for each.",
            )
        return super().read(spec, groups)
