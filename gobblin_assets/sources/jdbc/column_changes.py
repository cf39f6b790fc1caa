"""What changed in a table's columns since its schema was last accepted."""

from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.jdbc.layout import Layout
from gobblin_assets.sources.port import SourceRequest


def compare_columns(request: SourceRequest, layout: Layout) -> list[str]:
    """Notes on what changed since the schema was last accepted; RejectedError for what the dataset does not allow.

    A column that the dataset itself leaves out is only noted. A changed type is only noted too: the write compares
    Spark's types, and refuses values that don't fit the published files.
    """
    before = request.state.source_columns
    if before is None:
        return []
    spec, table = request.spec, layout.table
    now = {column.name: column.type_text for column in layout.columns}
    notes = [f"{table.name} has a new column {name} ({now[name]})" for name in now if name not in before]
    for name, type_text in before.items():
        if name in now:
            if now[name] != type_text:
                notes.append(f"{table.name}.{name} was {type_text} and is {now[name]} now")
        elif table.find_column(name) is not None:
            notes.append(f"{table.name}.{name} is no longer read")
        elif spec.schema_change.allow_dropped:
            notes.append(f"{table.name}.{name} ({type_text}) is gone")
        else:
            raise RejectedError(
                f"{table.name}.{name} ({type_text}) is gone",
                field=f"datasets[{request.urn}].schema_change",
                hint="Write schema_change: {allow_dropped: true} to go on without it.",
                table=str(table.name),
                column=name,
            )
    return notes
