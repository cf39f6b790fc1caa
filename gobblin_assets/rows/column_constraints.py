"""Constraints of the source that still hold for the published columns."""

from collections.abc import Mapping, Sequence

from gobblin_assets.model.source_declarations import SourceConstraints
from gobblin_assets.spec.job_spec import ConverterSpec


def carry_constraints(
    found: SourceConstraints, links: Sequence[ConverterSpec], columns: Mapping[str, str]
) -> SourceConstraints:
    """Constraints of the published ``columns``: a renamed column keeps its own, one that SQL makes anew has none.

    A function may change anything, so nothing holds behind it. A key of which a column is missing is no key.
    """
    if any(link.function is not None for link in links):
        return SourceConstraints()
    names = {name: name for name in (*found.primary_key, *found.not_null)}
    for link in links:
        if link.rename is not None:
            renamed = link.rename
            names = {at_source: renamed.get(name, name) for at_source, name in names.items()}
        made = link.sql or {}
        names = {at_source: name for at_source, name in names.items() if name not in made}
    kept = {at_source: name for at_source, name in names.items() if name in columns}
    return SourceConstraints(
        tuple(kept[name] for name in found.primary_key) if kept.keys() >= set(found.primary_key) else (),
        frozenset(kept[name] for name in found.not_null if name in kept),
    )
