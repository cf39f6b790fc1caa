"""What no code of the product uses is taken out: tests alone keep nothing alive.

Uses are found by name: those of a private name in its own module, those of a public name anywhere. So a public name
that stands for two things hides one of them, and a name that this test finds is used nowhere.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from tests.architecture.sources import PACKAGE, ROOT, is_handed_over, names_of, parse_package, read_tree

_WORD = re.compile(r"\w+")
_PLACE = re.compile(r"gobblin_assets[\w.]*:\w+")

_OF_STEPS = "for packages that bring a kind of step"
_OF_OWNERS = "for people who look into the embedded server with tools of their own"
_CALLED_BY_IO = "Python's streams call it"
_CALLED_BY_CLICK = "click calls it"
_CALLED_BY_DAGSTER = "Dagster calls it"
_CALLED_BY_DG = "dg calls it"
_READ_BY_PYDANTIC = "pydantic reads it"
_OF_LOGS = "an item of the port of logs that no worker needs: it assigns vnodes anew"
_SHOWN = "--json shows each field of a line"
_ANSWERED = "answers of the service's API show it"
_ON_PAGES = "pages of the service show it"
_WRITTEN = "made from the word that a job file says; the code asks for the others"

_OF_CATALOGS = "the interface of a catalog of specs, for packages that read one"
_OF_METADATA = "a table of the metadata, which the tests compare with what the migrations make"

# By the place where each is defined, with the reason why no use of it is seen.
EXCEPTIONS = {
    "cli._Commands.invoke": _CALLED_BY_CLICK,
    "cli.connections._ConfSetting.envvar_list_splitter": "click reads it",
    "cli.lazy_commands.LazyGroup.format_commands": _CALLED_BY_CLICK,
    "cli.lazy_commands.LazyGroup.resolve_command": _CALLED_BY_CLICK,
    "cli.lazy_commands.LazyGroup.shell_complete": _CALLED_BY_CLICK,
    "cli.dagster_option.DagsterCommand.parse_args": _CALLED_BY_CLICK,
    "cli.dagster_option._When.get_metavar": _CALLED_BY_CLICK,
    "commit.steps.undone_by_hand": _OF_STEPS,
    "dagster.component.GobblinCopyComponent.get_model_cls": _CALLED_BY_DAGSTER,
    "dagster.component.GobblinJobAttributes.model_config": _READ_BY_PYDANTIC,
    "dagster.component.GobblinJobComponent.build_defs": _CALLED_BY_DAGSTER,
    "dagster.component.GobblinJobComponent.get_model_cls": _CALLED_BY_DAGSTER,
    "dagster.component_schema._PlainSchema.nullable_schema": "pydantic calls it",
    "dagster.component.SurroundingsOptions.model_config": _READ_BY_PYDANTIC,
    "dagster.scaffolding.CopyScaffoldParams.model_config": _READ_BY_PYDANTIC,
    "dagster.scaffolding.CopyScaffolder.get_scaffold_params": _CALLED_BY_DG,
    "dagster.resources.spark.GobblinSparkResource.spark_context": "dagster-pyspark's interface of a resource",
    "dagster.resources.spark.GobblinSparkResource.spark_session": "the same",
    "dagster.resources.spark.GobblinSparkResource.teardown_after_execution": _CALLED_BY_DAGSTER,
    "dagster.resources.stores.CommitStoreResource.yield_for_execution": _CALLED_BY_DAGSTER,
    "dagster.scaffolding.JobScaffoldParams.model_config": _READ_BY_PYDANTIC,
    "dagster.scaffolding.JobScaffolder.get_scaffold_params": _CALLED_BY_DG,
    "db.alembic_runs.run_environment": "the entry points of Alembic call it, one beside the migrations of each schema",
    "service.catalogs.SpecCatalog": _OF_CATALOGS,
    "service.specs.FlowSpec.child_specs": _OF_CATALOGS,
    "service.catalogs.SpecCatalog.get_specs": _OF_CATALOGS,
    "service.flow_catalog.FlowCatalog.get_specs": _OF_CATALOGS,
    "service.topology_catalog.TopologyCatalog.get_specs": _OF_CATALOGS,
    "service.postgres.tables.adopted_log": _OF_METADATA,
    "service.postgres.tables.catalog_change": _OF_METADATA,
    "service.flow_config.FlowConfig.failure_option": "Postgres reads it in the stored config",
    "service.postgres.tables.flow_slot": _OF_METADATA,
    "service.postgres.tables.job_attempt": _OF_METADATA,
    "service.postgres.tables.template_pack": _OF_METADATA,
    "service.postgres.tables.topology_entry": _OF_METADATA,
    "service.postgres.tables.way_heartbeat": _OF_METADATA,
    "service.postgres.tables.way_output": _OF_METADATA,
    "service.postgres.tables.way_place": _OF_METADATA,
    "service.postgres.tables.way_report": _OF_METADATA,
    "db.embedded.EmbeddedServer.jdbc_url": _OF_OWNERS,
    "db.embedded.EmbeddedServer.tcp_url": _OF_OWNERS,
    "destinations.iceberg.data_files._DurableFile.to_input_file": "pyiceberg asks for it",
    "destinations.iceberg.iceberg_tables._Append.table_metadata": "the same",
    "destinations.iceberg.iceberg_tables._Catalog._load_file_io": "the same",
    "destinations.transacted_rows.TransactedRows": "for packages that bring a place of rows",
    "events.webhook._Connection._new_conn": "urllib3 calls it",
    "events.webhook._Pool.ConnectionCls": "urllib3 looks for it",
    "events.webhook._TlsPool.ConnectionCls": "the same",
    "failpoints.install": "for tests, which are what failpoints are for",
    "fs.objects.ObjectStream.readall": "Python's buffered reader calls it",
    "fs.objects.ObjectStream.readinto": "Python's buffered reader calls it",
    "fs.objects.ObjectStream.seekable": "the same",
    "fs.hdfs.streams.HdfsReader.readinto": _CALLED_BY_IO,
    "fs.hdfs.streams.HdfsReader.seekable": _CALLED_BY_IO,
    "fs.hdfs.streams.HdfsWriter.writable": _CALLED_BY_IO,
    "fs.sftp.login._UnknownKeys.validate_host_public_key": "asyncssh calls it",
    "model.extract.ExtractType.SNAPSHOT_APPEND": _WRITTEN,
    "fs.s3.client._Connection.endheaders": "urllib3 calls it",
    "fs.s3.client._Pool.ConnectionCls": "urllib3 looks for it",
    "fs.s3.client._TlsPool.ConnectionCls": "the same",
    "jobs.copy.transfer.copy_process.serve": "what a copying process runs",
    "jobs.ingest.spark_engine.SparkEngine.has_session": "for benchmarks, which measure the opening of a session",
    "rows.open_files.CountedStream.writable": _CALLED_BY_IO,
    "rows.attempt_files._PartStream.writable": _CALLED_BY_IO,
    "service.job_plan.SpecCompiler.get_topology_spec_map": "of Gobblin's port: the executors that a compiler knows",
    "service.multi_hop_compiler.MultiHopCompiler.get_topology_spec_map": "the same",
    "spark.session.ConnectPatience.can_retry": "PySpark's client calls it",
    "service.api.representations.ExplanationBody.next_fires": _ANSWERED,
    "service.api.representations.HealthBody.snapshot_age_s": _ANSWERED,
    "service.api.representations.HealthBody.topology_version": _ANSWERED,
    "service.api.representations.LogBody.drained_by": _ANSWERED,
    "service.api.representations.LogBody.draining_since": _ANSWERED,
    "service.api.representations.LogBody.last_pause_s": _ANSWERED,
    "service.ui.wizard_fields.WizardField.suggests": _ON_PAGES,
    "service.ui.wizard_suggestions.SuggestedList.divisions": _ON_PAGES,
    "service.ui.wizard_suggestions.Suggestions.is_waiting": _ON_PAGES,
    "service.ui.flow_forms.FlowForm.needs_source": _ON_PAGES,
    "service.ui.flow_forms.FlowForm.needs_target": _ON_PAGES,
    "service.ui.wizard_fields.WizardField.choices": _ON_PAGES,
    "service.ui.wizard_fields.WizardRows.can_grow": _ON_PAGES,
    "sources.log_port.LogReader.rewind": _OF_LOGS,
    "sources.log_port.StreamChunk.chunk_id": _OF_LOGS,
    "sources.kafka.epoch_log.KafkaEpochLog.rewind": _OF_LOGS,
    "sources.postgres_log.slot_reader.SlotReader.rewind": _OF_LOGS,
    "sources.connection.SourceConnection.model_config": _READ_BY_PYDANTIC,
    "spec.job_spec.DatasetSpec.model_config": _READ_BY_PYDANTIC,
    "spec.spec_model.SpecModel.model_config": _READ_BY_PYDANTIC,
    "state.overview.SequenceLine.prepared_at": _SHOWN,
}


def walk_definitions(module: str, tree: ast.Module) -> Iterator[tuple[str, str, ast.stmt]]:
    """Place, name and statement of what a module defines, and of what its classes do: methods, fields, members."""
    for statement in tree.body:
        for name in names_of(statement):
            yield f"{module}.{name}", name, statement
        if isinstance(statement, ast.ClassDef):
            yield from _walk_class(f"{module}.{statement.name}", statement)


def _walk_class(place: str, found: ast.ClassDef) -> Iterator[tuple[str, str, ast.stmt]]:
    for statement in found.body:
        for name in names_of(statement):
            yield f"{place}.{name}", name, statement


def count_uses(node: ast.AST) -> Counter[str]:
    """How often each name is read: by itself, behind a dot, in a pattern, in a quoted annotation, by `getattr`, by the
    text ``module:name``, in ``__all__``.
    """
    found: Counter[str] = Counter()
    for each in ast.walk(node):
        match each:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                found[name] += 1
            case ast.MatchClass(kwd_attrs=names):
                found.update(names)
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str() as name), *_]):
                found[name] += 1
            case ast.Constant(value=str() as text) if _PLACE.fullmatch(text):
                found[text.rpartition(":")[2]] += 1
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=names)):
                found.update(name.value for name in names if isinstance(name, ast.Constant))
            case ast.arg(annotation=ast.expr() as quoted) | ast.AnnAssign(annotation=quoted):
                found.update(_quoted_names(quoted))
            case ast.FunctionDef(returns=ast.expr() as quoted):
                found.update(_quoted_names(quoted))
            case _:
                continue
    return found


def _quoted_names(annotation: ast.expr) -> Iterator[str]:
    for each in ast.walk(annotation):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield from _WORD.findall(each.value)


@cache
def find_unused() -> frozenset[str]:
    modules = parse_package()
    uses = {module: count_uses(tree) for module, tree in modules.items()}
    anywhere: Counter[str] = Counter()
    for found in (*uses.values(), *(count_uses(ast.parse(text)) for text in read_tree(ROOT / "resources").values())):
        anywhere.update(found)
    return frozenset(
        place for module, tree in modules.items() for place in list_unused(module, tree, uses[module], anywhere)
    )


def list_unused(module: str, tree: ast.Module, inside: Counter[str], anywhere: Counter[str]) -> Iterator[str]:
    """``inside``: what the module uses, ``anywhere``: what all of them do. Private members may be a base class's."""
    for place, name, statement in walk_definitions(module, tree):
        is_member = place.count(".") > module.count(".") + 1
        uses = inside if name.startswith("_") and not is_member else anywhere
        is_special = name.startswith("__") and name.endswith("__")
        if not is_special and not is_handed_over(statement) and uses[name] <= count_uses(statement)[name]:
            yield place


def test_the_product_uses_what_it_defines() -> None:
    unused = {place.removeprefix(f"{PACKAGE}.") for place in find_unused()}
    assert unused - EXCEPTIONS.keys() == set(), "take it out with its tests, or name it above with its reason"
    assert EXCEPTIONS.keys() - unused == set(), "it is used, or gone: take out the exception"


@pytest.mark.parametrize(
    ("text", "unused"),
    [
        ("def lonely(): return lonely()", {"lonely"}),
        ("def called(): ...\ncalled()", set()),
        ("LIMIT = 3", {"LIMIT"}),
        ("def _shared(): ...", {"_shared"}),
        ("class Place:\n    width: int\n    def measure(self): return self.width\nPlace()", {"Place.measure"}),
        ("class Colour(Enum):\n    RED = 1\n    BLUE = 2\nColour.RED", {"Colour.BLUE"}),
        ("@click.command()\ndef run(): ...", set()),
        ("class Record: ...\ndef read(it: 'Record'): ...\nread(1)", set()),
    ],
)
def test_what_is_unused_would_be_seen(text: str, unused: set[str]) -> None:
    tree = ast.parse(text)
    elsewhere = count_uses(ast.parse("_shared"))
    found = {
        place.removeprefix("m.") for place in list_unused("m", tree, count_uses(tree), count_uses(tree) + elsewhere)
    }
    assert found == unused
