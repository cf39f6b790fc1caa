"""The names of the tables into which a sink loads rows, for whoever only shows them."""

import re
from typing import Final

from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.sink_spec import IcebergSpec, TablesSpec

_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_]")


def split_table_name(urn: DatasetUrn, into: TablesSpec | IcebergSpec) -> tuple[str, str]:
    """The schema and the name of a dataset's table."""
    schema = into.namespace if isinstance(into, IcebergSpec) else into.tables_schema
    return schema, _UNUSUAL.sub("_", urn)
