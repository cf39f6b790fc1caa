"""Jobs in Dagster: the component, the translator, definitions, resources. docs/PYTHON.md has an example of each."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gobblin_assets.dagster.code_location import build_definitions
    from gobblin_assets.dagster.component import GobblinCopyComponent, GobblinJobComponent
    from gobblin_assets.dagster.decorator import build_asset_specs, gobblin_assets
    from gobblin_assets.dagster.factory import build_gobblin_definitions
    from gobblin_assets.dagster.naming import DatasetTranslation, GobblinTranslator, SourceTranslation
    from gobblin_assets.dagster.resources import (
        CommitStoreResource,
        FileSystemsResource,
        GobblinResource,
        GobblinSparkResource,
        JdbcConnectionResource,
        KafkaConnectionResource,
        SourceConnectionResource,
        gobblin_resources,
    )
    from gobblin_assets.dagster.run_config import GobblinRunConfig

__all__ = [
    "CommitStoreResource",
    "DatasetTranslation",
    "FileSystemsResource",
    "GobblinCopyComponent",
    "GobblinJobComponent",
    "GobblinResource",
    "GobblinRunConfig",
    "GobblinSparkResource",
    "GobblinTranslator",
    "JdbcConnectionResource",
    "KafkaConnectionResource",
    "SourceConnectionResource",
    "SourceTranslation",
    "build_asset_specs",
    "build_definitions",
    "build_gobblin_definitions",
    "gobblin_assets",
    "gobblin_resources",
]

_MODULES = {
    "CommitStoreResource": "resources",
    "DatasetTranslation": "naming",
    "FileSystemsResource": "resources",
    "GobblinCopyComponent": "component",
    "GobblinJobComponent": "component",
    "GobblinResource": "resources",
    "GobblinRunConfig": "run_config",
    "GobblinSparkResource": "resources",
    "GobblinTranslator": "naming",
    "JdbcConnectionResource": "resources",
    "KafkaConnectionResource": "resources",
    "SourceConnectionResource": "resources",
    "SourceTranslation": "naming",
    "build_asset_specs": "decorator",
    "build_definitions": "code_location",
    "build_gobblin_definitions": "factory",
    "gobblin_assets": "decorator",
    "gobblin_resources": "resources",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
