"""The owners of assets, as a component's ``translation`` has them."""

import re
from typing import Final

from dagster._core.definitions.utils import is_valid_owner

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
