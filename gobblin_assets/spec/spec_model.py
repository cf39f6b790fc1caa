"""What all parts of a job's specification share."""

import datetime as dt
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict

MIB = 1 << 20
DAY_S = 86_400.0


class SpecModel(BaseModel):
    """An unknown option is an error, never silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


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
        raise ValueError("write it like 2013-01-31")  # noqa: TRY004  pydantic turns only ValueErrors into its own
    return value


Moment = Annotated[dt.date | dt.datetime, BeforeValidator(_refuse_number)]
