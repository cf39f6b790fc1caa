"""Changes of a source's columns since a dataset's schema was last accepted."""

from collections.abc import Collection, Mapping

from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.source_port import SourceRequest


def compare_columns(request: SourceRequest, now: Mapping[str, str], name: str, at_source: Collection[str]) -> list[str]:
    """Notes on what changed since the schema was last accepted; RejectedError for what the dataset does not allow.

    ``now``: the columns that are read, name to type text. ``name``: of the table, for sentences. A column that is still
    ``at_source`` is left out by the dataset itself, which is only noted. A changed type is only noted too: the write
    compares Spark's types, and refuses values that don't fit the published files.
    """
    before = request.state.source_columns
    if before is None:
        return []
    notes = [f"{name} has a new column {column} ({now[column]})" for column in now if column not in before]
    for column, type_text in before.items():
        if column in now:
            if now[column] != type_text:
                notes.append(f"{name}.{column} was {type_text} and is {now[column]} now")
        elif column in at_source:
            notes.append(f"{name}.{column} is no longer read")
        elif request.spec.schema_change.allow_dropped:
            notes.append(f"{name}.{column} ({type_text}) is gone")
        else:
            raise RejectedError(
                f"{name}.{column} ({type_text}) is gone",
                field=f"datasets[{request.urn}].schema_change",
                hint="Write schema_change: {allow_dropped: true} to go on without it.",
                table=name,
                column=column,
            )
    return notes
