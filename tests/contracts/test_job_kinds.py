"""What the engine requires of a job kind and of a destination: the same answers from each of them."""

import ast
import uuid
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from gobblin_assets.commit.attempts import STAGING_NAME
from gobblin_assets.commit.segment import decode_segment, encode_segments
from gobblin_assets.commit.step_world import StepPorts, StepWorld
from gobblin_assets.commit.steps import CommitStep, StepVerdict
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import WHOLE
from gobblin_assets.model.state import AttemptId, DatasetId, DatasetState, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.destination import Destination, DestinationRequest, Target
from gobblin_assets.run.job_kind import JobKind, Output, PlanRequest, Session, Staged, UnitPlan, WorkOrder
from tests.support import numbered_rows
from tests.support.kinds import COMBINATIONS, DESTINATIONS, DIRECTORIES, IN_A_STORE, OBJECTS
from tests.support.lake import JOB, Lake, World
from tests.support.table_lake import TABLES, make_any_lake

LINES_MAX = 160


@pytest.fixture(params=[*COMBINATIONS, *IN_A_STORE, (TABLES, DIRECTORIES), (TABLES, OBJECTS)], ids="-".join)
def lake(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Lake:
    return make_any_lake(request, database_url, tmp_path)


@pytest.fixture
def kind(lake: Lake) -> JobKind:
    return lake.open_kind()


@pytest.fixture
def destination(lake: Lake) -> Iterator[Destination]:
    world = World(lake)
    fs, root = open_file_system(lake.root)
    yield DESTINATIONS[lake.destination](
        DestinationRequest(JobName(JOB), lake.root, fs, root, world.stores, open_file_system, SystemClock().new_id)
    )
    world.close()


def ask(urn: DatasetUrn, mode: Mode = Mode.APPEND) -> PlanRequest:
    return PlanRequest(urn, WHOLE, DatasetState(DatasetId(1), JobName(JOB), urn, 0), mode, by_hand=True)


def order(plan: UnitPlan, directory: str, destination: Destination | None = None) -> WorkOrder:
    attempt = AttemptId(uuid.uuid4())
    names = None if destination is None else destination.names_for(target(plan.urn))
    return WorkOrder(
        *(JobName(JOB), DatasetId(1), plan, plan.work_units, attempt, directory, SystemClock().now(), str(attempt)),
        names=names,
    )


def target(urn: DatasetUrn) -> Target:
    return Target(urn, "", SequenceId(uuid.UUID(int=1)), 0)


def list_steps(destination: Destination, outputs: Sequence[Output], urn: DatasetUrn) -> list[CommitStep]:
    """As the log stores them."""
    segments = encode_segments(destination.steps_for(outputs, target(urn)), role=Role.DATA, partition="")
    return [step for each in segments for step in decode_segment(each.payload, each.digest)]


def do_all(session: Session, plan: UnitPlan, directory: str, destination: Destination | None = None) -> Staged:
    return session.open_worker().do(order(plan, directory, destination))


def test_units_follow_each_other_without_a_gap_and_belong_to_the_request(kind: JobKind) -> None:
    for urn in kind.urns:
        with kind.open(lambda _line: None, [ask(urn)]) as session:
            plan = session.plan(ask(urn))
        assert plan.urn == urn
        assert [unit.number for unit in plan.work_units] == list(range(len(plan.work_units)))
        intervals = [unit.interval for unit in plan.work_units if unit.interval is not None]
        assert all(one.high == other.low for one, other in pairwise(intervals))
        assert {(unit.dataset, unit.partition) for unit in plan.work_units} == {(urn, WHOLE)}


def test_what_is_done_is_told_whole_and_is_not_visible(kind: JobKind, destination: Destination, lake: Lake) -> None:
    destination.bind()
    urn = next(iter(kind.urns))
    place = destination.stage(AttemptId(uuid.uuid4()))
    with kind.open(lambda _line: None, [ask(urn)]) as session:
        staged = do_all(session, session.plan(ask(urn)), place, destination)
    if lake.destination == OBJECTS:
        written = {path for path in lake.files.list_left(STAGING_NAME) if not path.startswith(place)}
        steps = list_steps(destination, staged.outputs, urn)
        told = {path for step in steps for path, _identity, _rows in step.published()}
    else:
        written = {path for path in lake.files.list_all() if path.startswith(f"{place}/")}
        told = {f"{output.path}/{file.name}" for output in staged.outputs for file in output.files}
    assert told == written
    assert not told & {path for path in lake.files.list_all() if not path.startswith(place)}
    assert staged.rows_read == sum(file.row_count for output in staged.outputs for file in output.files) == 13


def test_an_unknown_tag_is_cancelled_without_a_word_and_an_interruption_is_plain_json(kind: JobKind) -> None:
    urn = next(iter(kind.urns))
    with kind.open(lambda _line: None, [ask(urn)]) as session:
        session.plan(ask(urn))
        worker = session.open_worker()
        worker.cancel("nobody")
        told = worker.describe_interruption("somebody", [])
    assert told is None or all(isinstance(name, str) for name in told)


def test_a_destination_gives_each_attempt_a_place_of_its_own(destination: Destination, lake: Lake) -> None:
    destination.bind()
    places = {destination.stage(AttemptId(uuid.uuid4())) for _ in range(3)}
    assert len(places) == 3
    assert lake.files.list_left(STAGING_NAME) == []


def test_binding_again_finds_the_same_place(destination: Destination) -> None:
    for _ in range(2):
        destination.bind()
        destination.require()


def test_steps_publish_what_was_staged_and_find_themselves_done(
    kind: JobKind, destination: Destination, lake: Lake
) -> None:
    destination.bind()
    urn = next(iter(kind.urns))
    place = destination.stage(AttemptId(uuid.uuid4()))
    with kind.open(lambda _line: None, [ask(urn)]) as session:
        staged = do_all(session, session.plan(ask(urn)), place, destination)
    destination.make_durable({place: staged.outputs})
    steps = list_steps(destination, staged.outputs, urn)
    assert steps
    assert list_steps(destination, [], urn) == []
    with StepPorts(open_file_system) as ports:
        fs = open_file_system(lake.root)[0]
        for step in steps:
            assert step.verify(StepWorld(fs, ports)) is StepVerdict.DO
            step.prepare(StepWorld(fs, ports))
            step.execute(StepWorld(fs, ports))
            assert step.verify(StepWorld(fs, ports)) is StepVerdict.DONE
    published = [path for step in steps for path, _identity, _rows in step.published()]
    assert set(published) <= set(lake.files.list_all())
    assert len(published) == sum(len(output.files) for output in staged.outputs)


def test_the_kind_in_memory_is_small_and_knows_the_engine_s_ports_alone() -> None:
    text = Path(numbered_rows.__file__).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES_MAX
    imported = {node.module or "" for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)}
    ours = {name.split(".")[1] for name in imported if name.startswith("gobblin_assets.")}
    assert ours == {"model", "run"}
    assert not any(name.startswith(("tests", "pyarrow", "pyspark")) for name in imported)
