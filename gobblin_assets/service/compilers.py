"""Compilers of flows by name: ``multi_hop``, ``identity``, and those that packages offer."""

from collections.abc import Callable
from typing import Final

from gobblin_assets.extensions import Extensions
from gobblin_assets.service.job_plan import SpecCompiler
from gobblin_assets.service.template_store import TemplateStore
from gobblin_assets.service.topology import Topology

MakeCompiler = Callable[[TemplateStore, Topology], SpecCompiler]

DEFAULT_COMPILER: Final = "multi_hop"

COMPILERS: Final = Extensions[MakeCompiler](
    group="gobblin_assets.spec_compilers",
    noun="compiler of flows",
    option="compiler",
    accepts=callable,
    built_in={
        DEFAULT_COMPILER: "gobblin_assets.service.multi_hop_compiler:MultiHopCompiler",
        "identity": "gobblin_assets.service.identity_compiler:IdentityCompiler",
    },
)


def build_compiler(templates: TemplateStore, topology: Topology, name: str = DEFAULT_COMPILER) -> SpecCompiler:
    """The compiler of this name. RejectedError if nothing offers it."""
    return COMPILERS.get(name)(templates, topology)
