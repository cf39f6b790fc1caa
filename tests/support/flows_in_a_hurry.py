"""The code location ``flows`` for `dagster code-server start`, which may be loaded again after a second."""

import dagster as dg

from gobblin_assets.dagster import flows_location, flows_reloading

flows_reloading.RELOAD_EVERY_S = 1.0  # type: ignore[misc]  # a test does not wait for a minute
flows_reloading.LOAD_SHARE_MAX = 1.0  # type: ignore[misc]  # the same


@dg.definitions
def defs() -> dg.Definitions:
    """The definitions that Dagster loads."""
    return flows_location.defs()
