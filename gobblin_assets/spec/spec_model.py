"""The base that all parts of a job's specification share."""

import datetime as dt
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

MIB = 1 << 20
DAY_S = 86_400.0


REFUSED: Final = "refused"
"""The type of pydantic's errors that ``refused`` makes."""


def refused(said: str, *, option: str = "", hint: str) -> PydanticCustomError:
    """An error for a validator to raise, with its own words. ``option``: the name of the option below what is checked.

    ``spec_errors.refuse`` makes a RejectedError of it.
    """
    return PydanticCustomError(REFUSED, "{said}", {"said": said, "option": option, "hint": hint})


class SpecModel(BaseModel):
    """An unknown option is an error, never silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)


def list_differing(spec: SpecModel) -> set[str]:
    """The options that are not what they are by default. What was written and changes nothing does no harm."""
    fields = type(spec).model_fields
    extra = {name for name, value in (spec.model_extra or {}).items() if value is not None}
    return extra | {
        name
        for name in spec.model_fields_set & fields.keys()
        if getattr(spec, name) != fields[name].get_default(call_default_factory=True)
    }


def _refuse_number(value: object) -> object:
    """Pydantic would take 2013 for seconds since 1970."""
    if isinstance(value, int | float):
        raise refused(f"expected a date, found {value!a}", hint="Write it as 2026-01-31.")
    return value


def _read_whole(value: object) -> object:
    """YAML takes 1e12 for a text, and 1.0e+12 for a number with a fraction."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return value
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_read_whole)]
"""A whole number, which may be written with an exponent."""

Moment = Annotated[dt.date | dt.datetime, BeforeValidator(_refuse_number)]
