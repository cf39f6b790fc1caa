"""Histories of the service: short stories, each with one fault anywhere, and long ones at random."""

import datetime as dt
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from unittest import mock

from gobblin_assets.model.executor_heartbeat import ExecutorPhase
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.tickets.wire_topics import name_report_topic, name_ticket_topic
from tests.simulation.service_promises import WINDOW, ServicePromises
from tests.simulation.service_tables import FlowRow
from tests.simulation.service_world import LOGS, PERSON, WIRE, WIRED, Fault, ServiceWorld
from tests.support.flow_world import KEY

CRON: Final = "*/10 * * * *"
TURNS: Final = 60
CALM_TURNS: Final = 150
_FAULT_SHARES: Final = (0.0, 0.01, 0.04)
_SETTLED_AFTER: Final = 6
_ACTS: Final = ("change", "change", "pause", "resume", "run", "cancel", "resume execution", "delete", "replan")


def _key(name: str) -> FlowKey:
    return FlowKey(KEY.group, name)


def settle(world: ServiceWorld, promises: ServicePromises) -> None:
    """Everything is well from now on: all that is open ends, and workers end with their flows."""
    world.calm_down()
    for turn in range(CALM_TURNS):
        world.go_on(1, seconds=20.0)
        promises.check()
        if turn == _SETTLED_AFTER:
            with world.undisturbed():
                for flow in list(world.tables.flows.values()):
                    _end_schedule(world, flow)
        if turn > _SETTLED_AFTER and _is_over(world):
            break
    promises.check_end()


def _end_schedule(world: ServiceWorld, flow: FlowRow) -> None:
    """Workers end with their flow, since nothing else ends them."""
    if flow.deleted_at is not None:
        return
    world.ask(lambda flows: flows.resume(flow.key))
    world.change(flow.key, schedule="")
    if "worker" in flow.config.parameters:
        world.ask(lambda flows: flows.delete(flow.key))


def _is_over(world: ServiceWorld) -> bool:
    is_open = any(execution.ended_at is None for execution in world.tables.executions.values())
    waits = any(world.tables.list_waiting(flow_id) for flow_id in world.tables.flows)
    tickets = any(row.ended_as is None for log in world.logs.values() for row in log.tickets.values())
    deletions = any(job.deletion == "waits" for job in world.tables.list_jobs())
    return not (is_open or waits or tickets or deletions)


@dataclass(frozen=True)
class Story:
    """``tell`` does what happens beside the processes, between their turns."""

    name: str
    tell: Callable[[ServiceWorld], Iterator[None]]


def _cron(world: ServiceWorld) -> Iterator[None]:
    world.create("cron", schedule=CRON)
    world.at += dt.timedelta(minutes=8)
    for _turn in range(6):
        yield
    world.at += dt.timedelta(minutes=25)
    for _turn in range(6):
        yield


def _two_jobs(world: ServiceWorld) -> Iterator[None]:
    world.create("two", "lake", "mirror", retries=2, retry_wait="1s")
    for _turn in range(12):
        yield


def _dies_while_it_waits(world: ServiceWorld) -> Iterator[None]:
    world.create("two", "lake", "mirror")
    world.executors["a"].paused_until_s = world.monotonic() + 90
    for _turn in range(6):
        yield
    world.at += dt.timedelta(seconds=40)
    for _turn in range(10):
        yield


def _dies_while_it_runs(world: ServiceWorld) -> Iterator[None]:
    world.create("one", retries=1, retry_wait="1s")
    for _turn in range(3):
        yield
    world.kill(world.executors["a"])
    for _turn in range(3):
        yield
    world.executors["a"].paused_until_s = world.monotonic() + 120
    world.at += dt.timedelta(seconds=45)
    for _turn in range(8):
        yield


def _worker_update(world: ServiceWorld) -> Iterator[None]:
    world.create("worker", schedule="@continuous", parameters={"worker": 1})
    for _turn in range(6):
        yield
    world.change(_key("worker"), parameters={"worker": 2, "first": 0})
    for _turn in range(8):
        yield
    world.ask(lambda flows: flows.delete(_key("worker")))
    for _turn in range(4):
        yield


def _deadline(world: ServiceWorld) -> Iterator[None]:
    for executor in world.executors.values():
        executor.paused_until_s = world.monotonic() + 60
    world.create("late", "lake", "mirror", start_deadline="20s", finish_deadline="2m")
    for _turn in range(10):
        yield


def _retry(world: ServiceWorld) -> Iterator[None]:
    world.mishaps.passing = 0.5
    world.create("retried", "lake", "mirror", retries=5, retry_wait="1s")
    for _turn in range(12):
        yield


def _cancel(world: ServiceWorld) -> Iterator[None]:
    world.create("cancelled", "lake", "mirror")
    for _turn in range(3):
        yield
    world.ask(lambda flows: flows.cancel(_key("cancelled"), 1))
    for _turn in range(6):
        yield


def _resume(world: ServiceWorld) -> Iterator[None]:
    world.mishaps.staying = 1.0
    world.create("resumed", "lake", "mirror")
    for _turn in range(6):
        yield
    world.mishaps.staying = 0.0
    world.ask(lambda flows: flows.resume_execution(PERSON, _key("resumed"), 1))
    for _turn in range(8):
        yield


def _over_a_wire(world: ServiceWorld) -> Iterator[None]:
    world.change_topology(WIRED, "c")
    world.create("wired", "lake", "mirror")
    for turn in range(10):
        yield
        if turn == 2:
            world.topics.make_anew(name_report_topic(WIRED))


def _lost_over_a_wire(world: ServiceWorld) -> Iterator[None]:
    world.change_topology(WIRED, "c")
    world.create("wired", "lake", "mirror")
    world.create("worker", schedule="@continuous", parameters={"worker": 1})
    for _turn in range(4):
        yield
    world.executors[WIRED].paused_until_s = world.monotonic() + 100
    world.at += dt.timedelta(seconds=40)
    for _turn in range(10):
        yield
    world.ask(lambda flows: flows.delete(_key("worker")))
    for _turn in range(4):
        yield


def _worker_moves(world: ServiceWorld) -> Iterator[None]:
    world.create("worker", schedule="@continuous", parameters={"worker": 1})
    for _turn in range(5):
        yield
    world.change_topology("b", "c")
    for _turn in range(8):
        yield
    world.ask(lambda flows: flows.delete(_key("worker")))
    for _turn in range(4):
        yield


def _replan(world: ServiceWorld) -> Iterator[None]:
    world.create("worker", schedule="", parameters={"worker": 1})
    for _turn in range(4):
        yield
    world.ask(lambda flows: flows.cancel(_key("worker"), 1))
    for _turn in range(4):
        yield
    world.ask(lambda flows: flows.replan(PERSON, _key("worker")))
    world.ask(lambda flows: flows.run(PERSON, _key("worker")))
    for _turn in range(6):
        yield
    world.ask(lambda flows: flows.delete(_key("worker")))
    for _turn in range(4):
        yield


STORIES: Final = (
    Story("a flow by cron", _cron),
    Story("two jobs in a row", _two_jobs),
    Story("an executor dies while a job waits", _dies_while_it_waits),
    Story("an executor dies while a job runs", _dies_while_it_runs),
    Story("a worker is changed and deleted", _worker_update),
    Story("deadlines", _deadline),
    Story("retries", _retry),
    Story("an execution is cancelled", _cancel),
    Story("an execution is resumed", _resume),
    Story("a flow over a wire whose topic is made anew", _over_a_wire),
    Story("an executor over a wire is silent for a while", _lost_over_a_wire),
    Story("a worker's executor leaves the topology", _worker_moves),
    Story("a flow of workers is replanned", _replan),
)


@contextmanager
def repeat_alike(seed: int) -> Iterator[None]:
    """What is played again goes the same way: ids that are drawn at random are the same, and nothing has a thread."""
    chance = random.Random(f"ids {seed}")

    def draw() -> uuid.UUID:
        return uuid.UUID(int=chance.getrandbits(128), version=4)

    def refuse(thread: threading.Thread) -> None:
        raise AssertionError(f"{thread.name} is begun: the simulated world has no threads")

    with mock.patch("uuid.uuid4", draw), mock.patch("threading.Thread.start", refuse):
        yield


@repeat_alike(1)
def run_story(story: Story, at: int = 0, fault: Fault | None = None) -> int:
    """Returns the count of calls. ``fault`` befalls the call of the number ``at``."""
    world = ServiceWorld(seed=1, fault_at={} if fault is None else {at: fault})
    promises = ServicePromises(world)
    for _ in story.tell(world):
        world.go_on(1)
        promises.check()
    calls = world.number
    settle(world, promises)
    return calls


@dataclass
class ServiceHistory:
    """One history at random."""

    seed: int

    def run(self) -> ServiceWorld:
        chance = random.Random(self.seed)
        world = ServiceWorld(self.seed, chance.choice((1, 2, 3)), slots=chance.choice((1, 2)))
        world.mishaps.passing = chance.choice((0.0, 0.1))
        world.mishaps.staying = chance.choice((0.0, 0.03))
        world.mishaps.dying = chance.choice((0.0, 0.1))
        # Flows whose log is open begin at the first executor: in two of five histories, over the wire.
        first = chance.choice((WIRED, *LOGS))
        world.change_topology(first, *(name for name in LOGS if name != first))
        promises = ServicePromises(world)
        with world.undisturbed():
            self._begin(world, chance)
        world.fault_share = chance.choice(_FAULT_SHARES)
        faults = world.topics.faults
        faults.lost = faults.unanswered = faults.doubled = world.fault_share
        try:
            for _turn in range(TURNS):
                self._turn(world, chance)
                promises.check()
            settle(world, promises)
        except AssertionError as error:
            raise AssertionError(f"history {self.seed}: {error}; {world.done[-12:]}") from error
        return world

    def _begin(self, world: ServiceWorld, chance: random.Random) -> None:
        for name in ("x", "y", "z")[: chance.randint(1, 3)]:
            self._create(world, chance, name)

    def _create(self, world: ServiceWorld, chance: random.Random, name: str) -> None:
        if chance.random() < 0.3:
            world.create(name, schedule="@continuous", parameters={"worker": 1})
            return
        options: dict[str, object] = {
            "schedule": chance.choice((CRON, CRON, "0 * * * *", "")),
            "overlap": chance.choice(("skip", "queue", "allow")),
            "catch_up": chance.choice(("latest", "all", "none")),
            "windows": chance.choice(([], [], [WINDOW])),
            "spread": chance.choice(("", "", "7m")),
            "catch_up_max": chance.choice((2, 100)),
            "retries": chance.choice((0, 2)),
            "retry_wait": "5s",
            "failure_option": chance.choice(("FINISH_RUNNING", "FINISH_ALL_POSSIBLE")),
            "start_deadline": chance.choice(("", "", "2m")),
            "finish_deadline": chance.choice(("", "", "10m")),
        }
        world.create(name, *chance.choice((("lake",), ("lake", "mirror"))), **options)

    def _turn(self, world: ServiceWorld, chance: random.Random) -> None:
        if chance.random() < 0.3:
            self._act(world, chance)
        if chance.random() < 0.2:
            self._go_wrong(world, chance)
        world.at += dt.timedelta(seconds=chance.choice((0.3, 1, 3, 8, 20, 45, 400)))
        for _step in range(chance.randint(3, 9)):
            number = chance.randrange(len(world.nodes))
            world.look(world.nodes[number], chance.choice(list(world.nodes[number].loops)))
        for name in sorted(world.executors):
            if chance.random() < 0.8:
                world.step(world.executors[name])

    def _act(self, world: ServiceWorld, chance: random.Random) -> None:
        key = _key(chance.choice(("x", "y", "z")))
        flow = world.tables.find_flow(key)
        if flow is None:
            self._create(world, chance, key.name)
            return
        past = world.tables.list_of(flow.flow_id)
        last = past[-1].execution_id if past else 0
        match chance.choice(_ACTS):
            case "change" if "worker" in flow.config.parameters:
                world.change(key, parameters={**flow.config.parameters, "worker": chance.randint(1, 9)})
            case "change":
                schedule = chance.choice((CRON, "*/30 * * * *", flow.config.schedule))
                world.change(key, schedule=schedule, description=str(chance.random()))
            case "pause":
                world.ask(lambda flows: flows.pause(key))
            case "resume":
                world.ask(lambda flows: flows.resume(key))
            case "run":
                world.ask(lambda flows: flows.run(PERSON, key))
            case "cancel" if last:
                world.ask(lambda flows: flows.cancel(key, last))
            case "resume execution" if last:
                world.ask(lambda flows: flows.resume_execution(PERSON, key, last))
            case "replan":
                world.ask(lambda flows: flows.replan(PERSON, key))
            case "delete" if chance.random() < 0.3:
                world.ask(lambda flows: flows.delete(key))

    def _go_wrong(self, world: ServiceWorld, chance: random.Random) -> None:
        executor = world.executors[chance.choice(sorted(world.executors))]
        match chance.choice(("die", "pause", "drain", "node", "away", "topology", "topics", "topics")):
            case "die":
                world.kill(executor)
            case "pause":
                executor.paused_until_s = world.monotonic() + chance.choice((20.0, 50.0, 400.0))
            case "drain":
                executor.phase = ExecutorPhase.DRAINING
            case "node":
                world.replace(chance.choice(world.nodes))
            case "away":
                world.away = {chance.choice((*sorted(world.logs), WIRE))} if not world.away else set()
            case "topics":
                world.topics.make_anew(chance.choice((name_ticket_topic, name_report_topic))(WIRED))
            case "topology":
                # Each log stays: of executors on one that has left, a node that begins now hears nothing.
                kept = [name for name in ("a", "b", "c", "d") if chance.random() < 0.5]
                names = [chance.choice(("a", "b")), chance.choice(("c", "d")), *kept]
                chance.shuffle(names)
                world.change_topology(*dict.fromkeys(names))


def run_service_history(seed: int) -> ServiceWorld:
    """AssertionError: a promise is broken."""
    with repeat_alike(seed):
        return ServiceHistory(seed).run()
