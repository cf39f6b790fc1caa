"""The options of datasets that a finder found: the job's defaults, and the overrides whose globs match their names."""

from collections.abc import Sequence

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec, CopySpec
from gobblin_assets.jobs.copy.globs import parse_glob
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.spec.job_options import PartitionsSpec

_MATCH = "match"
# What a finder says of each dataset, or what holds for the job's partitions as a whole.
_NOT_FOR_OVERRIDES = ("urn", "path", "to", "partitions")


def dataset_of(job: CopySpec, urn: str, path: str, to: str, keys: Sequence[str]) -> CopyDatasetSpec:
    """The options of a found dataset: with named file sets, ``keys``, these are its partitions."""
    options = job.defaults
    for number, each in enumerate(job.overrides):
        if parse_glob(each.match, field=f"overrides[{number}].match").matches(urn):
            options = _over(options, each)
    kind = PartitionKind.STATIC if keys else PartitionKind.NONE
    update = {"urn": urn, "path": path, "to": to, "partitions": PartitionsSpec(kind=kind, keys=tuple(keys))}
    return options.model_copy(update=update)


def list_overridden(job: CopySpec) -> list[CopyDatasetSpec]:
    """The defaults under each override, as datasets with that one get them. RejectedError names a wrong override."""
    if job.overrides and job.finder is None:
        raise RejectedError(
            "expected a finder, whose datasets these are for",
            field="overrides",
            hint="Write the options with the datasets themselves, under `datasets`.",
        )
    for number, each in enumerate(job.overrides):
        where = f"overrides[{number}]"
        parse_glob(each.match, field=f"{where}.{_MATCH}")
        wrong = next((name for name in _NOT_FOR_OVERRIDES if name in each.model_fields_set), None)
        if wrong is not None:
            raise RejectedError("is not to be overridden", field=f"{where}.{wrong}", hint="Take it out.")
    return [_over(job.defaults, each) for each in job.overrides]


def _over(options: CopyDatasetSpec, override: CopyDatasetSpec) -> CopyDatasetSpec:
    own = {name: getattr(override, name) for name in override.model_fields_set if name != _MATCH}
    return options.model_copy(update=own)
