"""A kind of source: one object with the options of a job, their rules, and the class that opens connections.

Rules that hold for the source options of every kind stand here too, each with its own message.
"""

from collections.abc import Callable
from dataclasses import dataclass

from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.source_spec import SOURCE_OPTIONS, SOURCES, LogSourceSpec, SourceOptions, SourceSpec
from gobblin_assets.spec.spec_model import list_differing


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaffold:
    """The texts that `dg scaffold defs` writes for a kind.

    ``dataset``: the name of a first one. ``address``: what the variable of the connection's address may hold.
    ``beside``: the ends of further variables. ``datasets``: the text under ``datasets:``, with ``{datasets}`` where
    they stand. ``source``: further options of the source, on one line.
    """

    dataset: str
    address: str
    beside: str = ""
    source: str = ""
    datasets: str = "  datasets:\n{datasets}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKind(SourceOptions):
    """A kind of source, offered by an entry point of the group ``gobblin_assets.sources`` with its ``name``.

    It imports neither Spark nor a client, because every process that reads a job file loads it. ``connection`` names
    the ``SourceConnection`` class as ``module:class``, imported when something connects; None: a program hands
    the rows over, and ``instead`` says how, since no run reads them. ``title``: the kind's name in sentences.
    ``shown_as``: the kind that Dagster shows for the table or topic if its address does not say more; None: the noun.
    ``check_job`` and ``check_dataset`` (with its place in the job) raise RejectedError for options that do not fit
    together. ``has_dead_letters``: records may be undecodable, and then are no rows. ``scaffold`` None: `dg` writes no
    such job. ``demands_spark``: whether only Spark reads the rows in a job's runs, whatever the datasets ask for.
    """

    title: str
    connection: str | None
    scaffold: Scaffold | None = None
    instead: str = ""
    shown_as: str | None = None
    check_job: Callable[[JobSpec], None] = lambda _job: None
    check_dataset: Callable[[DatasetSpec, str], None] = lambda _dataset, _where: None
    has_dead_letters: bool = False
    demands_spark: Callable[[JobSpec], bool] = lambda _job: True

    @property
    def has_own_positions(self) -> bool:
        """Whether positions are the source's, and no column has them."""
        return self.is_log or self.connection is None


def kind_of(source: SourceSpec) -> SourceKind:
    """The kind of a source that was read from a job. RejectedError if its package can't be loaded."""
    kind = SOURCES.get(source.type)
    if not isinstance(kind, SourceKind):
        raise CorruptionError(f"the kind of source {source.type!r} is {type(kind).__name__}, and no SourceKind")
    return kind


def require_connection(kind: SourceKind) -> str:
    """What opens connections of the kind. RejectedError if no run reads its rows, since a program hands them over."""
    if kind.connection is None:
        raise RejectedError(
            f"no run reads the rows of a {kind.noun}: a program hands them over", field="source.type", hint=kind.instead
        )
    return kind.connection


def register_source(kind: SourceKind) -> None:
    """Make a kind known to this process only. RejectedError if the name is known already."""
    SOURCES.register(kind.name, kind)


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
