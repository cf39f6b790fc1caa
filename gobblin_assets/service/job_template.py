"""Job templates: a job's options with placeholders, and the parameters that fill them.

    capability: ingest.jdbc
    shape: run
    from: {kind: database, format: table}
    to: {kind: files, format: dataset}
    parameters: {type: object, properties: {table: {type: string, pattern: '^[A-Za-z0-9_.]{1,100}$'}}}
    job:
      source: {connection: "${from.connection}"}
      destination: ${to.root}
      datasets:
        - {table: "${table}"}

A template is checked when it is published: a placeholder has a parameter; a parameter has a type and, of texts, a
pattern; no parameter stands where SQL, code, a place or a connection is written. People who fill in parameters can so
choose nothing but names and numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from jsonschema.protocols import Validator
from pydantic import Field, ValidationError, model_validator

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.registry import scheme_of
from gobblin_assets.model.job_ticket import JobTicket, TicketShape, job_ticket_from_json, job_ticket_to_json
from gobblin_assets.service.placeholders import JobTree, check_job_tree
from gobblin_assets.service.template_parameters import make_validator, read_schema
from gobblin_assets.service.topology import DataNode, Format, NodeKind
from gobblin_assets.spec.spec_errors import refuse
from gobblin_assets.spec.spec_model import SpecModel, refused
from gobblin_assets.spec.yaml_files import read_yaml

TEMPLATE_BYTES_MAX: Final = 256 << 10
_ANY_JOB: Final = "gobblin-job:/any/any/any"


class EndOptions(SpecModel):
    """One end of a template's hop, as its file says it."""

    kind: NodeKind | None = None
    kinds: tuple[NodeKind, ...] = ()
    format: Format
    node: str | None = Field(None, max_length=100, description="This node alone.")
    schemes: tuple[Annotated[str, Field(pattern=r"^[a-z][a-z0-9+.-]{0,30}$")], ...] = Field(
        (), description="Of nodes with a root: only such URIs; file is an absolute path. Empty: all."
    )

    @model_validator(mode="after")
    def _says_its_kinds(self) -> "EndOptions":
        if (self.kind is None) == (not self.kinds):
            found = "both" if self.kinds else "neither"
            raise refused(f"expected either kind or kinds, found {found}", option="kind", hint="Write one of them.")
        return self


class AclOptions(SpecModel):
    groups: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(
        (), description="The groups of users who may use it. Empty: all."
    )


class TemplateOptions(SpecModel):
    """A template's file."""

    uri: str | None = Field(None, description="As it is found in its pack. May be left out.")
    version: str = Field("1", min_length=1, max_length=100)
    description: str = Field("", max_length=2_000)
    capability: str = Field(pattern=r"^[a-z][a-z0-9_]*(\.[a-z0-9_]+)*$", max_length=100)
    shape: TicketShape
    source: EndOptions = Field(alias="from")
    to: EndOptions
    cost: float = Field(1.0, ge=0, le=1_000_000, allow_inf_nan=False)
    acl: AclOptions = AclOptions()
    parameters: dict[str, Any] = Field(default_factory=dict)
    job: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TemplateEnd:
    """The nodes that a hop may begin or end at. ``node``: only this one; ``schemes``: of their roots; empty: all."""

    kinds: frozenset[NodeKind]
    format: Format
    node: str | None = None
    schemes: frozenset[str] = frozenset()

    def fits(self, node: DataNode) -> bool:
        if node.kind not in self.kinds or self.node not in {None, node.name}:
            return False
        return not self.schemes or (node.root is not None and scheme_of(node.root) in self.schemes)


@dataclass(frozen=True, slots=True, eq=False)
class JobTemplate:
    """A checked template. ``uri``: with the version of its pack; ``plain_uri``: without it.

    ``groups``: of users who may use it; empty: all. ``parameters``: a JSON Schema of an object, without references.
    ``job``: the options, with placeholders.
    """

    uri: str
    plain_uri: str
    version: str
    description: str
    capability: str
    shape: TicketShape
    source: TemplateEnd
    target: TemplateEnd
    cost: float
    groups: frozenset[str]
    parameters: Mapping[str, Any]
    job: JobTree
    validator: Validator = field(repr=False)
    needs: frozenset[str] = frozenset()
    """What the job is told of its nodes, such as ``to.root``."""


def parse_template(text: str, uri: str, plain_uri: str) -> JobTemplate:
    """Read a template. ``uri``: with the pack's version; ``plain_uri``: without it.

    RejectedError names the template, the option in it, and the fix.
    """
    try:
        return _parse(text, uri, plain_uri)
    except RejectedError as error:
        said = error.message.removeprefix(f"{error.field}: ")
        raise RejectedError(said, field=f"{plain_uri}: {error.field}", hint=error.hint) from None


def _parse(text: str, uri: str, plain_uri: str) -> JobTemplate:
    if len(text.encode()) > TEMPLATE_BYTES_MAX:
        raise RejectedError(
            f"expected at most {TEMPLATE_BYTES_MAX >> 10} KiB",
            field="template",
            hint="Divide it into several templates.",
        )
    try:
        options = TemplateOptions.model_validate(_read_text(text))
    except ValidationError as error:
        raise refuse(error, TemplateOptions) from None
    if options.uri not in {None, uri, plain_uri}:
        raise RejectedError(
            f"expected {plain_uri}, by its place in the pack; found {options.uri!a}", field="uri", hint="Leave it out."
        )
    _require_ticket(options)
    schema = read_schema(options.parameters)
    return JobTemplate(
        uri=uri,
        plain_uri=plain_uri,
        version=options.version,
        description=options.description,
        capability=options.capability,
        shape=options.shape,
        source=_end_of(options.source),
        target=_end_of(options.to),
        cost=options.cost,
        groups=frozenset(options.acl.groups),
        parameters=schema,
        job=_require_places(options.job),
        validator=make_validator(schema),
        needs=check_job_tree(options.job, schema),
    )


def _require_ticket(options: TemplateOptions) -> None:
    """RejectedError: no ticket may say what the template says. It is refused before flows use it."""
    ticket = JobTicket(
        uri=_ANY_JOB,
        version=options.version,
        capability=options.capability,
        job={"job": "any"},
        shape=options.shape,
        description=options.description,
    )
    job_ticket_from_json(job_ticket_to_json(ticket), "")


def _read_text(text: str) -> object:
    try:
        return read_yaml(text, Path("the template"))
    except RejectedError as error:
        said = error.message.removeprefix(f"{error.field}: ")
        raise RejectedError(said, field="template", hint=error.hint) from None


def _end_of(options: EndOptions) -> TemplateEnd:
    kinds = options.kinds if options.kind is None else (options.kind,)
    return TemplateEnd(frozenset(kinds), options.format, options.node, frozenset(options.schemes))


def _require_places(job: Mapping[str, Any]) -> JobTree:
    """A job's name is the flow's, and what it publishes lies below the root of its node.

    A tree belongs to one job. So a job of a tree may have a directory of its own there.
    """
    expected = {"job": ("${flow.job}",), "destination": ("${to.root}", "${to.root}/${flow.job}")}
    kept = {}
    for name, placeholders in expected.items():
        kept[name] = found = job.get(name, placeholders[0] if name == "job" else None)
        if found not in placeholders:
            raise RejectedError(
                f"expected {' or '.join(placeholders)}, found {'nothing' if found is None else 'something else'}",
                field=f"job.{name}",
                hint=f"Write `{name}: {placeholders[0]}`.",
            )
    return {**job, **kept}
