"""The YAML components: a job's specification as ``attributes``, and how its datasets look in Dagster.

One is for jobs that read rows, the other for jobs that copy files. Both use the same model and functions as
``factory``. Our own validation reports faults of the YAML, with the field and the fix; the JSON schema is for ``dg``,
editors and their completion.
"""

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import dagster as dg
from dagster._core.definitions.utils import is_valid_owner
from dagster.components.core.decl import ComponentDecl
from dagster.components.core.defs_module import PythonFileComponent, find_defs_or_component_yaml
from dagster.components.resolved.context import ResolutionContext
from dagster.components.resolved.core_models import AssetAttributesModel
from dagster.components.utils.translation import TranslatorResolvingInfo
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from gobblin_assets.dagster.component_schema import describe_options
from gobblin_assets.dagster.environment import find_database, resources_from_environment
from gobblin_assets.dagster.factory import build_gobblin_definitions
from gobblin_assets.dagster.naming import DatasetTranslation, GobblinTranslator, SourceTranslation
from gobblin_assets.dagster.ports import connection_key
from gobblin_assets.dagster.resources.connections import SourceConnectionResource
from gobblin_assets.dagster.scaffolding import CopyScaffolder, JobScaffolder
from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy.copy_spec import CopySpec
from gobblin_assets.jobs.copy.parsing import read_copy
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.sources.discovery import find_discovery
from gobblin_assets.spec.doubled_keys import refuse_doubled_keys
from gobblin_assets.spec.job_files import place_destination
from gobblin_assets.spec.job_options import JobOptions
from gobblin_assets.spec.job_parsing import parse_job
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.spec_errors import refuse, suggest
from gobblin_assets.spec.spec_model import refused

TEMPLATE_PATTERN: Final = r"\{\{"
"""A text that Dagster fills in: what it will be is not known yet."""

OWNER_PATTERN: Final = rf"^team:.+|.+@.+\..+|{TEMPLATE_PATTERN}"


def check_owners(written: object) -> object:
    """The same, for pydantic, whose errors say what an owner is."""
    if written is None or (isinstance(written, str) and re.search(TEMPLATE_PATTERN, written)):
        return written
    if not isinstance(written, list | tuple):
        raise refused(
            f"expected a list of e-mail addresses and teams, found {written!a}",
            hint="Write [team:data], or [me@example.com].",
        )
    for owner in written:
        if isinstance(owner, str) and (re.search(TEMPLATE_PATTERN, owner) or is_valid_owner(owner)):
            continue
        raise refused(
            f"expected e-mail addresses, and names of teams with the prefix team:, found {owner!a}",
            hint="Write team:data, or me@example.com.",
        )
    return written


class SurroundingsOptions(BaseModel):
    """The options of what a component brings for its code location."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    executor: Literal["in_process", "project"] = Field(
        "in_process",
        description="in_process: this job brings the code location's executor; project: the project has its own.",
    )
    resources: Literal["component", "project"] = Field(
        "component",
        description="component: this job brings the resources that no Python file of the defs folder provides; "
        "project: the project provides all of them.",
    )


class ComponentOptions(SurroundingsOptions):
    """The options of a component besides the job's own options."""

    discovered: str | None = Field(
        None, description="State file of gobblin-assets discover, relative to this file; for source.include."
    )


class _Translation(AssetAttributesModel):  # type: ignore[valid-type,misc]  # Dagster derives this model at run time
    """Dagster's attributes of an asset. Dagster itself looks at the owners when it makes the asset."""

    owners: Annotated[
        Any,
        BeforeValidator(check_owners),
        WithJsonSchema(
            {
                "if": {"anyOf": [{"type": "null"}, {"type": "string", "pattern": TEMPLATE_PATTERN}]},
                "else": {"type": "array", "items": {"type": "string", "pattern": OWNER_PATTERN}},
                "description": "E-mail addresses, or names of teams with the prefix team:",
                "examples": [["team:analytics", "nelson@hooli.com"]],
            }
        ),
    ] = None


class _Translated(BaseModel):
    """The place at which errors find what is wrong."""

    translation: _Translation


class _Documented(JobSpec, ComponentOptions):
    """The attributes as the schema shows them."""

    translation: str | _Translation | None = Field(
        None, description="Key, group, tags, metadata, …; templates see `urn`, `role`, `job`, `dataset` and `spec`."
    )


class GobblinJobAttributes(BaseModel):
    """The attributes as they are written. They are read by ``load``, after templates were filled in."""

    model_config = ConfigDict(extra="allow")

    @classmethod
    def model_json_schema(cls, *_arguments: Any, **_options: Any) -> dict[str, Any]:
        """The schema of what ``load`` takes."""
        return describe_options(_Documented, title=cls.__name__)


class _DocumentedCopy(CopySpec, SurroundingsOptions):
    """The same for copies."""

    translation: str | _Translation | None = Field(
        None, description="Key, group, tags, metadata, …; templates see `urn`, `role`, `job`, `dataset` and `spec`."
    )


class GobblinCopyAttributes(GobblinJobAttributes):
    """The attributes of a copy as they are written."""

    @classmethod
    def model_json_schema(cls, *_arguments: Any, **_options: Any) -> dict[str, Any]:
        """The schema of what ``load`` takes."""
        return describe_options(_DocumentedCopy, title=cls.__name__)


@dg.scaffold_with(JobScaffolder)
class GobblinJobComponent(dg.Component):
    """Datasets of a source, such as tables of a database or topics of Kafka, as assets, each publication exactly once.

    ``attributes`` are a job: ``job``, ``source``, ``destination``, ``datasets``, …, and besides ``translation``,
    ``discovered``, ``executor`` and ``resources``. The component brings its resources, as the environment says
    (``gobblin_assets.dagster.environment``), except those that the project's Python files provide. Override
    ``get_asset_spec`` to change how a dataset looks, and ``get_source_spec`` to change how its source looks.
    """

    def __init__(
        self,
        job: JobOptions,
        *,
        options: SurroundingsOptions | None = None,
        translation: TranslatorResolvingInfo | None = None,
        folder: Path | None = None,
    ) -> None:
        self.job = job
        self.options = options or SurroundingsOptions.model_validate({})
        self._translation = translation
        self._folder = folder or Path()

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        return GobblinJobAttributes

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        return dg.ComponentTypeSpec(
            description="Tables of a JDBC connection, or topics of Kafka, as assets that are published exactly once.",
            tags=["gobblin", "spark", "jdbc", "kafka"],
            produces=["asset", "asset_check", "job", "sensor"],
        )

    @classmethod
    def get_options_cls(cls) -> type[SurroundingsOptions]:
        """The options besides the job's own."""
        return ComponentOptions

    @classmethod
    def get_documented_cls(cls) -> type[BaseModel]:
        """All options, as the schema shows them."""
        return _Documented

    @classmethod
    def read_job(cls, options: Mapping[str, object]) -> JobOptions:
        """The job of these options. RejectedError names the field."""
        return parse_job(options)

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> "GobblinJobComponent":
        """Fill in templates and validate. RejectedError names the field, what was expected and the fix."""
        _refuse_doubled_keys(context.path)
        written = dict(attributes.model_extra or {}) if attributes is not None else {}
        resolution = context.resolution_context.at_path("attributes")
        translation = written.pop("translation", None)
        filled = {key: resolution.at_path(key).resolve_value(value) for key, value in written.items()}
        model = cls.get_options_cls()
        options = {key: filled.pop(key) for key in model.model_fields.keys() & filled.keys()}
        _refuse_misspelt(filled, cls.get_documented_cls(), model)
        folder = context.path if context.path.is_dir() else context.path.parent
        return cls(
            cls.read_job(place_destination(filled, folder)),
            options=_parse_options(options, model),
            translation=_parse_translation(translation, resolution),
            folder=folder,
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        built = build_gobblin_definitions(
            self.job,
            discovered=self._read_discovered(),
            discovery_path=self._discovery_path,
            translator=_ComponentTranslator(self),
            executor=dg.in_process_executor if self.options.executor == "in_process" else None,
            database=find_database(self.job, os.environ),
        )
        if self.options.resources == "project":
            return built
        provided = _list_provided(context)
        resources = {**resources_from_environment([self.job]), **_find_named_connection(self.job, provided)}
        brought = {key: resource for key, resource in resources.items() if key not in provided}
        return dg.Definitions.merge(built, dg.Definitions(resources=brought))

    def get_asset_spec(self, data: DatasetTranslation) -> dg.AssetSpec:
        """The asset spec of one role of one dataset: the default, changed by ``translation``."""
        base = GobblinTranslator().get_asset_spec(data)
        if self._translation is None:
            return base
        names = {"urn": data.urn, "role": data.role.value, "job": data.job, "dataset": data.dataset, "spec": base}
        return self._translation.get_asset_spec(base, names)

    def get_source_spec(self, data: SourceTranslation) -> dg.AssetSpec | None:
        """The asset spec of a table or topic that is read; None: it is not shown."""
        return GobblinTranslator().get_source_spec(data)

    @property
    def _discovery_path(self) -> Path | None:
        named = self.options.discovered if isinstance(self.options, ComponentOptions) else None
        return None if named is None else self._folder / named

    def _read_discovered(self) -> tuple[str, ...] | None:
        path, job = self._discovery_path, self.job
        if path is None or not isinstance(job, JobSpec):
            return None
        found = find_discovery(path)
        if found is None:
            raise RejectedError(
                f"expected the state file of a discovery at {path}, found none",
                field="discovered",
                hint="Run gobblin-assets discover, or correct the path; it is relative to the component's folder.",
            )
        return found.selected(job.source)


@dg.scaffold_with(CopyScaffolder)
class GobblinCopyComponent(GobblinJobComponent):
    """Directory trees as assets: files are copied from one tree to another, each file set whole or not at all.

    ``attributes`` are a job of the kind ``distcp``: ``job``, ``source``, ``destination``, ``datasets`` or ``finder``,
    …, and besides ``translation``, ``executor`` and ``resources``. The rest is as in ``GobblinJobComponent``.
    """

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        return GobblinCopyAttributes

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        return dg.ComponentTypeSpec(
            description="Directory trees that are copied, as assets that are published exactly once.",
            tags=["gobblin", "distcp", "files"],
            produces=["asset", "asset_check", "job", "sensor"],
        )

    @classmethod
    def get_options_cls(cls) -> type[SurroundingsOptions]:
        return SurroundingsOptions

    @classmethod
    def get_documented_cls(cls) -> type[BaseModel]:
        return _DocumentedCopy

    @classmethod
    def read_job(cls, options: Mapping[str, object]) -> JobOptions:
        return read_copy({"kind": "distcp", **options})


class _ComponentTranslator(GobblinTranslator):
    """The component as a translator: subclasses override the component's ``get_asset_spec``."""

    def __init__(self, component: GobblinJobComponent) -> None:
        self._component = component

    def get_asset_spec(self, data: DatasetTranslation) -> dg.AssetSpec:
        return self._component.get_asset_spec(data)

    def get_source_spec(self, data: SourceTranslation) -> dg.AssetSpec | None:
        return self._component.get_source_spec(data)


def _find_named_connection(job: JobOptions, provided: Mapping[str, object]) -> dict[str, SourceConnectionResource]:
    """The project's own connection of the job, by its key, where a Python file provides it under the name alone."""
    source = program_of(job).source_of(job)
    found = None if source is None else provided.get(source.connection)
    if source is None or not isinstance(found, SourceConnectionResource) or source.type != found.KIND:
        return {}
    return {connection_key(source): found}


def _list_provided(context: dg.ComponentLoadContext) -> dict[str, object]:
    """The resources in the Python files of the project's defs folder, where `dg` puts them, by their keys."""
    if not isinstance(context.component_decl, ComponentDecl):
        # It stands alone (`dg.build_defs_for_component`): Dagster's tree of it is the working directory.
        return {}
    tree = context.component_tree
    provided: dict[str, object] = {}
    for file in tree.get_all_components(PythonFileComponent):
        # Dagster keeps what it builds here for when it comes to this file itself.
        provided |= tree.build_defs_at_path(file.path).resources or {}
    return provided


def _refuse_doubled_keys(place: Path) -> None:
    """RejectedError for a key that the component's file says twice: Dagster hands over the last one only."""
    file = place if place.is_file() else find_defs_or_component_yaml(place)
    if file is not None and file.suffix in {".yaml", ".yml"}:
        refuse_doubled_keys(file.read_text(encoding="utf-8"), file)


def _refuse_misspelt(
    filled: Mapping[str, object], documented: type[BaseModel], model: type[SurroundingsOptions]
) -> None:
    """RejectedError for a word that means an option of the component: the job's own errors know the job's alone."""
    known = {field.alias or name for name, field in documented.model_fields.items()}
    for name in sorted(filled.keys() - known):
        if difflib.get_close_matches(name, [*model.model_fields, "translation"], n=1):
            raise RejectedError("is not an option.", field=name, hint=suggest(name, sorted(known)))


def _parse_options(written: Mapping[str, object], model: type[SurroundingsOptions]) -> SurroundingsOptions:
    try:
        return model.model_validate(written)
    except ValidationError as error:
        raise refuse(error, model) from None


def _parse_translation(written: object, resolution: ResolutionContext) -> TranslatorResolvingInfo | None:
    if written is None:
        return None
    if not isinstance(written, str):
        try:
            written = _Translated.model_validate({"translation": written}).translation
        except ValidationError as error:
            raise refuse(error, _Translated) from None
    return TranslatorResolvingInfo(asset_attributes=written, resolution_context=resolution, model_key="translation")
