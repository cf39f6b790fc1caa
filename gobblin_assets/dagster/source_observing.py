"""Observations of source assets: that a run has read a table, topic or tree, and how much of it.

Nothing materializes a source asset. Dagster counts it as missing for ever, unless it can be observed and was:
so each has an op that observes it. The op reports what the log knows, and asks no source.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Never

import dagster as dg
from dagster._core.definitions.assets.definition.asset_spec import AssetExecutionType

from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.metadata import describe_reading
from gobblin_assets.dagster.naming import output_name_of
from gobblin_assets.dagster.ports import STORES_KEY
from gobblin_assets.model.state import DatasetState
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.run_values import DatasetReport
from gobblin_assets.run.stores import Stores


class SourceObservations:
    """The observations of one run: one of each source asset, however many partitions are read from it."""

    def __init__(self, layout: JobLayout) -> None:
        self._layout = layout
        self._observed: set[dg.AssetKey] = set()

    def observe(self, report: DatasetReport) -> Iterable[dg.AssetObservation]:
        """The observation to report with a publication: none, where there is no source, or it was reported.

        A publication of an earlier run says nothing of what this run has read.
        """
        source = self._layout.sources.get(report.urn)
        publication = report.publication
        if source is None or source.key in self._observed or publication is None or publication.recovered:
            return ()
        self._observed.add(source.key)
        return (
            build_observation(self._layout, report.urn, source, f"Read for {report.label}", describe_reading(report)),
        )


def build_source_observer(layout: JobLayout, specs: Sequence[dg.AssetSpec]) -> dg.AssetsDefinition:
    """One op for these sources of the job. It is in no job of Dagster's but those of people who ask for it."""
    urns: dict[dg.AssetKey, list[DatasetUrn]] = {}
    for urn, source in layout.sources.items():
        urns.setdefault(source.key, []).append(urn)

    @dg.op(
        name=f"{layout.job.job}_sources",
        out={output_name_of(spec.key): dg.Out(dg.Nothing, is_required=False) for spec in specs},
        required_resource_keys={STORES_KEY},
    )
    def observe_sources(context: dg.AssetExecutionContext) -> Iterator[Never]:
        stores: Stores = getattr(context.resources, STORES_KEY)
        asked = sorted(context.selected_asset_keys)
        states = stores.datasets.load(JobName(layout.job.job), [urn for key in asked for urn in urns[key]])
        for key in asked:
            known = next((urn for urn in urns[key] if urn in states), None)
            if known is not None:
                metadata = _describe_state(layout, known, states[known])
                context.log_event(dg.AssetObservation(asset_key=key, metadata=metadata))
        # A generator that yields nothing, as the assets' own: what is not known is not observed.
        yield from ()

    with warnings.catch_warnings():
        # The type of execution is beta in Dagster, whose own observable sources have it and take no op for several.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.AssetsDefinition(
            node_def=observe_sources,
            keys_by_input_name={},
            keys_by_output_name={output_name_of(spec.key): spec.key for spec in specs},
            specs=[spec.replace_attributes(skippable=True) for spec in specs],
            can_subset=True,
            execution_type=AssetExecutionType.OBSERVATION,
        )


def _describe_state(layout: JobLayout, urn: DatasetUrn, state: DatasetState) -> dict[str, dg.MetadataValue]:
    """Of the dataset that reads the source: its version, and up to where it is published."""
    metadata: dict[str, dg.MetadataValue] = {
        "gobblin/read_by": dg.MetadataValue.asset(layout.get_key(urn)),
        "gobblin/version": dg.MetadataValue.int(state.version),
    }
    watermarks = [each.watermark for each in state.keys.values() if each.watermark is not None]
    if len(watermarks) == 1:
        metadata["gobblin/watermark_after"] = dg.MetadataValue.text(str(watermarks[0]))
    return metadata


def build_observation(
    layout: JobLayout,
    urn: DatasetUrn,
    source: dg.AssetSpec,
    said: str,
    metadata: dict[str, dg.MetadataValue],
) -> dg.AssetObservation:
    """The event of a source asset that the dataset reads."""
    tree = layout.shown_data(urn).source_tree
    place = {} if tree is None else {"dagster/uri": dg.MetadataValue.text(tree.uri)}
    asset = dg.MetadataValue.asset(layout.get_key(urn))
    return dg.AssetObservation(
        asset_key=source.key, description=said, metadata={**metadata, **place, "gobblin/read_by": asset}
    )
