"""What Dagster's instance takes and gives, in the product's own terms."""

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from gobblin_assets.errors import RetryableError


@contextmanager
def telling(key: dg.AssetKey) -> Iterator[None]:
    """Around events of an asset. RetryableError where its storage does not take them, whatever its driver raises."""
    try:
        yield
    except Exception as error:
        raise RetryableError(
            f"Dagster does not take the event of {key.to_user_string()}: {type(error).__name__}",
            hint="What was published is safe. Look after Dagster's storage, then run again to tell it.",
        ) from error


def aware_moment(moment: dt.datetime) -> dt.datetime:
    """A moment that the instance gave: some storages leave out that it is UTC's."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
