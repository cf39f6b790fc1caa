"""The options of a job for one of several kinds: of sources, and of destinations of rows.

The options of a kind are in the kind's own folder. The job's ``type`` names the kind whose model reads its options.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError, ValidationError, core_schema

from gobblin_assets.errors import RejectedError
from gobblin_assets.extensions import Extensions
from gobblin_assets.spec.spec_model import SpecModel

UNKNOWN_KIND: Final = "unknown_kind"
"""Pydantic's error for a kind that there is none of; its context has ``said`` and ``hint``."""

UNKNOWN_OPTION: Final = "unknown_option"
"""Pydantic's error for an option that the kind does not have; its context has ``known`` and ``hint``."""

OF_CONNECTIONS: Final = frozenset({
    "url", "uri", "dsn", "host", "hostname", "port", "database", "dbname", "user", "username", "password", "driver",
    "properties", "bootstrap_servers", "brokers", "security_protocol", "sasl_mechanism", "token", "registry_url",
})  # fmt: skip
"""Options of a source that belong to its connection, and are never in a job."""


class OptionsOfKind(Protocol):
    """A kind as a job's options know it. ``variables``: how the variables of its connections go on after GOBBLIN_."""

    @property
    def spec(self) -> type[SpecModel]: ...

    @property
    def variables(self) -> str: ...


K = TypeVar("K", bound=OptionsOfKind)


@dataclass(frozen=True, slots=True, eq=False)
class KindOptions(Generic[K]):
    """A group of options by the model of its kind. ``base``: of all models. ``default``: the kind where none is said.

    As an annotation of a field, it is read so, and shown as any of the kinds that there are.
    """

    kinds: Extensions[K]
    base: type[SpecModel]
    default: str | None = None

    def read(self, written: object) -> object:
        """What a job says, by the model of its kind. For pydantic, whose errors name places within it."""
        if isinstance(written, self.base) or not isinstance(written, Mapping):
            return written
        name = written.get("type", self.default)
        try:
            kind = self.kinds.get(name if isinstance(name, str) else "")
        except RejectedError as error:
            raise self._refuse(name, error) from None
        try:
            return kind.spec.model_validate(written)
        except ValidationError as error:
            problems = [_know_options(each, kind, written) for each in keep_errors(error)]
            raise ValidationError.from_exception_data(self.base.__name__, problems) from None

    def list_kinds(self) -> Iterator[K]:
        for name in self.kinds.list_names():
            # A package that can't be loaded is refused where a job names its kind.
            with suppress(RejectedError):
                yield self.kinds.get(name)

    def _refuse(self, value: object, error: RejectedError) -> ValidationError:
        said = error.message.removeprefix(f"{error.field}: ")
        refused = PydanticCustomError(UNKNOWN_KIND, "{said}", {"said": said, "hint": error.hint or ""})
        problem = InitErrorDetails(type=refused, loc=("type",), input=value)
        return ValidationError.from_exception_data(self.base.__name__, [problem])

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self.read, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        specs = [kind.spec for kind in self.list_kinds()]
        return {"anyOf": [self._show(handler(spec.__pydantic_core_schema__)) for spec in specs]}

    def _show(self, schema: JsonSchemaValue) -> JsonSchemaValue:
        """Each kind's model has its ``type`` by default; of a job without one, only one kind is meant."""
        written = schema.get("properties", {}).get("type", {})
        if written.get("default") in (None, self.default):
            return schema
        kept = {name: value for name, value in written.items() if name != "default"}
        return {**schema, "properties": {**schema["properties"], "type": kept}}


def _know_options(problem: InitErrorDetails, kind: OptionsOfKind, written: Mapping[str, object]) -> InitErrorDetails:
    """The same; of an option that the kind does not have, with those that it has, or with the variable to set."""
    location = problem.get("loc", ())
    if problem["type"] != "extra_forbidden" or len(location) != 1:
        return problem
    name, connection = str(location[0]), written.get("connection")
    hint = ""
    if name in OF_CONNECTIONS:
        shown = connection.upper() if isinstance(connection, str) and connection.isidentifier() else "<CONNECTION>"
        variable = f"GOBBLIN_{kind.variables}_{shown}_…"
        hint = f"How a connection is reached is never in a job: it is in variables {variable} of the environment."
    said = PydanticCustomError(
        UNKNOWN_OPTION, "{said}", {"said": "is not an option", "known": sorted(kind.spec.model_fields), "hint": hint}
    )
    return InitErrorDetails(type=said, loc=location, input=problem["input"])


def keep_errors(error: ValidationError) -> list[InitErrorDetails]:
    """What pydantic found, to be raised again together with something else."""
    return [
        InitErrorDetails(type=_type_of(each), loc=each["loc"], input=each["input"], ctx=each.get("ctx", {}))
        for each in error.errors()
    ]


def _type_of(found: ErrorDetails) -> Any:
    """Pydantic makes errors of its own kinds by name, and takes those of others as objects."""
    if "url" in found:
        # Only pydantic's own have a page.
        return found["type"]
    # A template takes no text as it is; what is shown is made of the context.
    return PydanticCustomError(cast("Any", found["type"]), "{said}", found.get("ctx", {}))
