"""Rules for the source options of a job that hold for every kind of source, each with its own message."""

from gobblin_assets.errors import RejectedError
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.source_kind import SourceKind
from gobblin_assets.spec.source_spec import SOURCE_OPTIONS, LogSourceSpec
from gobblin_assets.spec.spec_model import list_differing


def check_words(written: DatasetSpec, where: str, kind: SourceKind) -> None:
    """Refuse options that only other kinds of source have; ``written``: the options without the job's defaults."""
    given = list_differing(written)
    for name in sorted(kind.refused.keys() & given):
        raise RejectedError(
            f"a {kind.title} source has no such option",
            field=f"{where}.{name}",
            hint=f"Take it out: {kind.refused[name]}.",
        )
    own = kind.dataset_options.model_fields if kind.dataset_options is not None else {}
    # An option that no kind has was refused when the job was read.
    foreign = sorted(given - DatasetSpec.model_fields.keys() - own.keys())
    if not kind.is_log and written.quality.lag_max is not None:
        foreign.append("quality.lag_max")
    if foreign:
        raise RejectedError(
            f"a {kind.title} source has no such option",
            field=f"{where}.{foreign[0]}",
            hint=f"Take it out, or write the kind that has it: source: {{type: {_find_kind(foreign[0])}, …}}.",
        )


def _find_kind(option: str) -> str:
    """The kinds whose datasets have the option."""
    models = [(kind.name, kind.dataset_options) for kind in SOURCE_OPTIONS.list_kinds()]
    return " or ".join(name for name, model in models if model is not None and option in model.model_fields) or "kafka"


def check_new_data(job: JobSpec) -> None:
    """RejectedError for a longest wait if nothing ever waits."""
    source = job.source
    if not isinstance(source, LogSourceSpec) or source.new_data.wait_s_max is None:
        return
    if source.new_data.records_min == 1:
        raise RejectedError(
            "ends the wait for records_min, and one new record is waited for by nobody",
            field="source.new_data.wait_s_max",
            hint="Raise records_min, or take it out.",
        )


def check_packing(job: JobSpec) -> None:
    """Check the packer against the source's size estimator. RejectedError for the first rule that does not hold."""
    packer = job.packer
    if packer.type != "topic_grouping" and (idle := sorted(list_differing(packer) - {"type"})):
        raise RejectedError(
            f"the packer {packer.type} has no such option",
            field=f"packer.{idle[0]}",
            hint="Take it out, or write type: topic_grouping.",
        )
    if not job.source.packs_by_rate and "capacity_strategy" in list_differing(packer):
        raise RejectedError(
            "chooses among the rates of earlier tasks, which only the size estimator produce_rate compares with",
            field="packer.capacity_strategy",
            hint="Take it out, or write source.size_estimator: produce_rate.",
        )
    tasks_max = max(each.split.max_multi_work_units for each in (job.defaults, *job.datasets))
    if packer.containers_min > tasks_max:
        raise RejectedError(
            f"expected at most split.max_multi_work_units, {tasks_max}; found {packer.containers_min}",
            field="packer.containers_min",
            hint="Lower it, or raise max_multi_work_units in the defaults.",
        )
