"""The command that asks a source for its tables or topics: discover."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gobblin_assets.cli.connections import SparkChoice, job_file_argument, spark_options
from gobblin_assets.cli.lazy_commands import example
from gobblin_assets.cli.output import EXIT_FAILED, json_option, print_json, print_table, say
from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.ingest.running import open_source
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.settings import make_home, read_settings
from gobblin_assets.sources.discovery import Discovery, select_tables, write_discovery
from gobblin_assets.sources.source_port import DescribedSource, Source, TableDescription
from gobblin_assets.spec.job_files import read_job_file
from gobblin_assets.spec.job_parsing import resolve_datasets
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.source_kind import kind_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@click.command(epilog=example("discover jobs/shop.yaml --columns --dataset public.orders"))
@job_file_argument
@click.option(
    "--columns", "with_columns", is_flag=True, help="Also show the columns of the job's tables, and their types."
)
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    metavar="URN",
    help="Show the columns of this dataset only; may be repeated.",
)
@spark_options
@json_option
def discover(
    job_file: Path,
    with_columns: bool,  # noqa: FBT001  an option that click passes by name
    datasets: Sequence[str],
    master: str | None,
    remote: str | None,
    as_json: bool,  # noqa: FBT001  the same
) -> None:
    """Ask the source once for its tables, and write the list that definitions and runs choose from.

    With --columns or --dataset, also show the tables' columns, and the casts to write in the job for types that Spark
    can't hold. This takes several queries for each table: about a second if Spark reads the database.
    """
    job = read_job_file(job_file)
    engine = SparkChoice(master, remote).open()
    source = open_source(job)

    def get_session() -> "SparkSession":
        return engine.get_session(job)

    option = "--columns" if with_columns else "--dataset"
    tables = _require_tables(job, source, option) if with_columns or datasets else None
    names = source.discover(get_session)
    settings = read_settings()
    make_home(settings.home)
    path = settings.discovery_path(job.job)
    found = write_discovery(path, names, job.source, SystemClock().now())
    chosen = select_tables(found.tables, job.source)
    described: Sequence[TableDescription] = ()
    if tables is not None:
        described = tables.describe(get_session, _choose(job, found, datasets))
    if as_json:
        shown = {"path": str(path), "tables": found.tables, "chosen": chosen}
        print_json({**shown, **({} if tables is None else {"columns": list(map(_to_plain, described))})})
    else:
        # Without patterns nothing is chosen here: the job names its tables itself.
        columns = ("table", "chosen") if job.source.include else ("table",)
        rows = [(name, name in chosen)[: len(columns)] for name in found.tables]
        print_table(f"tables of {job.source.connection}", columns, rows)
        for each in described:
            _print_description(each)
        say(f"Written to {path}")
    if job.source.include and not chosen:
        raise RejectedError(
            "no table is chosen by the patterns", field="source.include", hint="Compare them with the table above."
        )
    if any(each.error for each in described):
        click.get_current_context().exit(EXIT_FAILED)


def _require_tables(job: JobSpec, source: Source, option: str) -> DescribedSource:
    if isinstance(source, DescribedSource):
        return source
    noun = kind_of(job.source).noun
    raise RejectedError(
        f"is for tables: the columns of a {noun} are not known before it is read",
        field=option,
        hint="Leave the option out, and look at the schema options of the job.",
    )


def _choose(job: JobSpec, found: Discovery, urns: Sequence[str]) -> Mapping[DatasetUrn, DatasetSpec]:
    datasets = resolve_datasets(job, found.selected(job.source) if job.source.include else None)
    for urn in urns:
        if DatasetUrn(urn) not in datasets:
            raise RejectedError(
                f"the job {job.job} has no dataset {urn!r}",
                field="--dataset",
                hint=f"It has: {', '.join(datasets) or 'none'}.",
            )
    return {urn: spec for urn, spec in datasets.items() if not urns or urn in urns}


def _print_description(found: TableDescription) -> None:
    if found.error is not None:
        say(f"{found.urn}: {found.error}")
        return
    rows = [
        (
            *(column.name, column.source_type, column.nullable, column.spark_type or f"none: {column.problem}"),
            *(column.key_place, column.watermark_type, column.comment),
        )
        for column in found.columns
    ]
    columns = ("column", "type", "may be NULL", "type in the dataset", "key", "orders as", "comment")
    print_table(f"{found.urn} ({found.table})", columns, rows)
    if found.watermark is not None:
        click.echo(f"Suggested watermark, by name and type: watermark: {{column: {_yaml(found.watermark)}}}")
    if found.casts:
        click.echo("Spark can't hold some of these types. Write these casts for the dataset, or leave the columns out:")
        click.echo("casts:")
        for name, cast in found.casts.items():
            click.echo(f"  {_yaml(name)}: {_yaml(cast)}")


def _to_plain(found: TableDescription) -> dict[str, object]:
    return {
        "dataset": found.urn,
        "table": found.table,
        "primary_key": found.primary_key,
        "watermark": found.watermark,
        "comment": found.comment,
        "casts": found.casts,
        "columns": found.columns,
        "error": found.error,
    }


def _yaml(text: str) -> str:
    # YAML reads every text that JSON has quoted.
    return json.dumps(text, ensure_ascii=False)
