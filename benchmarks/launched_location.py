"""The code location of the launched runs: the product's definitions of one job, which note the time of each mark.

    GOBBLIN_BENCH_JOB      the job's options, as JSON
    GOBBLIN_BENCH_MARKS    the folder of the marks

Connections, Spark and the log are found where the product finds them.
"""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dagster as dg
from pyspark.sql import SparkSession

from benchmarks.marks import IMPORTED_AT, JOB_VARIABLE, MARKS_VARIABLE, Mark, MarkFile, find_process_start
from gobblin_assets import failpoints
from gobblin_assets.dagster.environment import REMOTE_VARIABLE
from gobblin_assets.dagster.factory import build_gobblin_definitions
from gobblin_assets.dagster.resources import (
    CommitStoreResource,
    GobblinSparkResource,
    JdbcConnectionResource,
    gobblin_resources,
)
from gobblin_assets.dagster.resources.connections import connection_from_environment
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.jdbc.jdbc_kind import JdbcSourceSpec
from gobblin_assets.sources.source_port import Source
from gobblin_assets.spec.job_spec import JobSpec

_marks = MarkFile(Path(os.environ[MARKS_VARIABLE]))
_marks.note(Mark.PROCESS_BEGUN, find_process_start())
_marks.note(Mark.LOCATION_BEGUN, IMPORTED_AT)


class MarkedStores(CommitStoreResource):
    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Stores]:
        _marks.note(Mark.POSTGRES_ASKED)
        with super().yield_for_execution(context) as stores:
            _marks.note(Mark.POSTGRES_OPENED)
            yield stores


class MarkedConnection(JdbcConnectionResource):
    def open_source(self, job: JobSpec) -> Source:
        source = super().open_source(job)
        # This is the last call before the call of the run function.
        _marks.note(Mark.RUN_CALLED)
        return source


class MarkedSpark(GobblinSparkResource):
    def get_session(self, job: JobSpec | None = None) -> SparkSession:
        if self.engine.has_session:
            return super().get_session(job)
        _marks.note(Mark.SESSION_ASKED)
        session = super().get_session(job)
        _marks.note(Mark.SESSION_OPENED)
        return session


def _note(reached: Failpoint) -> None:
    _marks.note(reached)


# Armed as long as the process lives.
_armed = ExitStack()
_armed.enter_context(failpoints.install(_note))


@dg.definitions
def defs() -> dg.Definitions:
    options = json.loads(os.environ[JOB_VARIABLE])
    name = options["source"]["connection"]
    given = connection_from_environment(JdbcSourceSpec(connection=name))
    assert isinstance(given, JdbcConnectionResource)
    resources = gobblin_resources(
        {name: MarkedConnection(url=given.url, user=given.user, password=given.password)},
        spark=MarkedSpark(remote=dg.EnvVar(REMOTE_VARIABLE)),
        stores=MarkedStores(),
    )
    built = dg.Definitions.merge(build_gobblin_definitions(options), dg.Definitions(resources=resources))
    _marks.note(Mark.LOCATION_BUILT)
    return built
