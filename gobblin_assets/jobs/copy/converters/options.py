"""Options of a converter as a model's values."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import ValidationError

from gobblin_assets.errors import RejectedError
from gobblin_assets.spec.spec_errors import refuse
from gobblin_assets.spec.spec_model import SpecModel

_Model = TypeVar("_Model", bound=SpecModel)


def read_converter_options(model: type[_Model], options: Mapping[str, object]) -> _Model:
    """RejectedError names the option alone, such as ``level``; the chain says of which converter."""
    try:
        return model.model_validate(options)
    except ValidationError as error:
        refused = refuse(error, model)
        message = refused.message.removeprefix(f"{refused.field}: ")
        raise RejectedError(message, field=refused.field, hint=refused.hint) from None
