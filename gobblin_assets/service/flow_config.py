"""The description of a flow as people write it: from where, to where, by which templates, with which parameters."""

import datetime as dt
import re
import uuid
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, get_args
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.schedules import (
    CONTINUOUS,
    DailyWindow,
    Schedule,
    find_window_end,
    leave_time,
    parse_schedule,
)
from gobblin_assets.spec.spec_errors import refuse
from gobblin_assets.spec.spec_model import SpecModel, refused

DESTINATIONS_MAX: Final = 20

_WINDOWS_MAX: Final = 20
_COUNT_MAX: Final = 10_000
_FIRES_SHOWN: Final = 5
_SLOTS_LOOKED_AT_MAX: Final = 1_000
_SPREAD_S_MAX: Final = 86_400
_SPREAD: Final = re.compile(r"([0-9]{1,5})([smh])")
_UNIT_S: Final = MappingProxyType({"s": 1, "m": 60, "h": 3_600})
_CLOCK: Final = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")

_RETRIES_MAX: Final = 100
_DEADLINE_S_MAX: Final = 365 * 86_400
_TIME: Final = re.compile(r"([0-9]{1,8})([smhd])")
_TIME_UNIT_S: Final = MappingProxyType({**_UNIT_S, "d": 86_400})

LATER_OPTIONS: Final = frozenset(
    {
        *("timezone", "catch_up", "catch_up_max", "spread", "overlap", "windows", "missing_max"),
        *("retries", "retry_wait", "failure_option", "start_deadline", "finish_deadline"),
    }
)
"""Options that are written only where they differ from their defaults: a release before them can read all others."""


def _read_node(value: object) -> object:
    return {"node": value} if isinstance(value, str) else value


def _read_nodes(value: object) -> object:
    return [value] if isinstance(value, str | Mapping) else value


class NodeChoice(SpecModel):
    """A node that a flow begins or ends at. Written as its name alone, or with the format of the data there."""

    node: Annotated[str, Field(min_length=1, max_length=100)]
    format: str | None = Field(
        None, description="Such as table, topic, changes, dataset, tree. Default: what the node's kind holds."
    )


def _check_spread(text: str) -> str:
    read = _SPREAD.fullmatch(text)
    if text and (read is None or int(read[1]) * _UNIT_S[read[2]] > _SPREAD_S_MAX):
        raise refused(
            f"expected a time of at most 24h, found {text[:40]!a}",
            hint="Write seconds, minutes or hours: 90s, 15m, 2h.",
        )
    return text


def _check_deadline(text: str) -> str:
    read = _TIME.fullmatch(text)
    if text and (read is None or not 0 < int(read[1]) * _TIME_UNIT_S[read[2]] <= _DEADLINE_S_MAX):
        raise refused(
            f"expected a time of at most 365d, found {text[:40]!a}",
            hint="Write seconds, minutes, hours or days: 90s, 15m, 2h, 3d.",
        )
    return text


def _check_clock(text: str) -> str:
    if _CLOCK.fullmatch(text) is None:
        raise refused(f"expected a time of the day, found {text[:40]!a}", hint='Write it in quotes, such as "22:00".')
    return text


class CatchUp(StrEnum):
    """Which slots are run that were missed: in an outage, a pause or a window."""

    LATEST = "latest"
    ALL = "all"
    NONE = "none"


class Overlap(StrEnum):
    """What becomes of a slot while an execution of the flow is open."""

    SKIP = "skip"
    QUEUE = "queue"
    ALLOW = "allow"


class FailureOption(StrEnum):
    """What becomes of jobs that are not begun when another job of the execution fails (Gobblin's words)."""

    FINISH_RUNNING = "FINISH_RUNNING"
    FINISH_ALL_POSSIBLE = "FINISH_ALL_POSSIBLE"


Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_WEEKDAYS: Final[tuple[Weekday, ...]] = get_args(Weekday)


class MaintenanceWindow(SpecModel):
    """A time of some days, in the flow's zone, in which the schedule does not start the flow."""

    start: Annotated[str, AfterValidator(_check_clock)] = Field(description='Such as "22:00".')
    end: Annotated[str, AfterValidator(_check_clock)] = Field(
        description="Of the next day, if it is not behind the start."
    )
    days: tuple[Weekday, ...] = Field(_WEEKDAYS, min_length=1, description="On which it starts, such as [sat, sun].")

    @property
    def daily(self) -> DailyWindow:
        start, end = dt.time.fromisoformat(self.start), dt.time.fromisoformat(self.end)
        return DailyWindow(start, end, frozenset(map(_WEEKDAYS.index, self.days)))


class FlowConfig(SpecModel):
    """A user's request: a flow's config, its source, its destinations.

    ``source`` and ``destinations`` may be left out where the flow's template names its nodes.
    """

    flow_group: str
    flow_name: str
    description: str = Field("", max_length=2_000)
    source: Annotated[NodeChoice, BeforeValidator(_read_node)] | None = None
    destinations: Annotated[
        tuple[Annotated[NodeChoice, BeforeValidator(_read_node)], ...], BeforeValidator(_read_nodes)
    ] = Field((), max_length=DESTINATIONS_MAX)
    template_uris: tuple[str, ...] = Field((), description="Only these templates are used, if there are some.")
    parameters: dict[str, Any] = Field(default_factory=dict, description="What the templates ask for.")
    schedule: str = Field(
        "",
        description="Cron (`0 3 * * *`), `@daily` and its like, or Quartz (`0 0 3 ? * MON#1`). `@continuous`: a flow "
        "of workers, which always runs. Empty: the flow runs once, when it is created.",
    )
    run_immediately: bool | None = Field(
        None, description="Run now. Default: at its creation, if there is no schedule; not at a change."
    )
    timezone: str = Field("UTC", description="The zone of the schedule and the windows, such as Europe/Berlin.")
    catch_up: CatchUp = Field(
        CatchUp.LATEST, description="Which slots are run that were missed: the latest one, all, or none."
    )
    catch_up_max: int = Field(
        100, ge=1, le=_COUNT_MAX, description="With `catch_up: all`: at most this many, the latest ones."
    )
    spread: Annotated[str, AfterValidator(_check_spread)] = Field(
        "",
        description="Such as 15m. Each slot is later by less than this, always by the same time: flows of one "
        "schedule don't meet.",
    )
    overlap: Overlap = Field(
        Overlap.SKIP, description="A slot while the flow runs is left out, waits for its end, or runs beside it."
    )
    windows: tuple[MaintenanceWindow, ...] = Field(
        (), max_length=_WINDOWS_MAX, description="Maintenance windows. A slot in one counts as missed until its end."
    )
    missing_max: int = Field(
        100,
        ge=1,
        le=_COUNT_MAX,
        description="One execution of the schedule takes at most this many missing partitions.",
    )
    retries: int = Field(
        0,
        ge=0,
        le=_RETRIES_MAX,
        description="A job that fails of what may pass is sent again at most this often. A job whose data others work "
        "on is sent again until they are done, and what a person has to mend is never sent again.",
    )
    retry_wait: Annotated[str, AfterValidator(_check_spread)] = Field(
        "1m", min_length=1, description="Before the first retry; doubled for each further one, up to an hour."
    )
    failure_option: FailureOption = Field(
        FailureOption.FINISH_ALL_POSSIBLE,
        description="When a job fails: FINISH_RUNNING begins no other one, FINISH_ALL_POSSIBLE all that don't need it.",
    )
    start_deadline: Annotated[str, AfterValidator(_check_deadline)] = Field(
        "", description="Such as 30m. An execution of which no job runs by then is cancelled."
    )
    finish_deadline: Annotated[str, AfterValidator(_check_deadline)] = Field(
        "", description="Such as 6h. An execution that has not ended by then is cancelled."
    )

    @property
    def runs_at_creation(self) -> bool:
        if self.run_immediately is not None:
            return self.run_immediately
        return self.schedule.strip().lower() in {"", CONTINUOUS}

    @property
    def retry_wait_s(self) -> float:
        read = _SPREAD.fullmatch(self.retry_wait)
        return 0.0 if read is None else float(int(read[1]) * _UNIT_S[read[2]])

    def parse_schedule(self, flow_id: uuid.UUID | None = None) -> Schedule | None:
        """The slots of the flow of this id, with its spread; without an id those of the schedule. None: it has none.

        RejectedError: this machine can't read the schedule, or does not know the zone.
        """
        schedule = parse_schedule(self.schedule, self.timezone)
        if schedule is None or flow_id is None or (read := _SPREAD.fullmatch(self.spread)) is None:
            return schedule
        return schedule.spread(flow_id, int(read[1]) * _UNIT_S[read[2]])

    def find_window_end(self, moment: dt.datetime) -> dt.datetime | None:
        """When the maintenance windows that ``moment`` is in are over, in UTC. None: it is in none."""
        return find_window_end([window.daily for window in self.windows], self.timezone, moment)

    def list_next_fires(self, flow_id: uuid.UUID | None, moment: dt.datetime) -> tuple[dt.datetime, ...]:
        """When the schedule next starts the flow, behind ``moment``, in the flow's zone: the first few times.

        A slot in a maintenance window is run at its end, if the flow catches up. None: the first thousand slots are in
        windows, and the flow does not.
        """
        schedule, zone = self.parse_schedule(flow_id), ZoneInfo(self.timezone)
        fires: list[dt.datetime] = []
        slot = None if schedule is None else schedule.next_after(moment)
        for _ in range(_SLOTS_LOOKED_AT_MAX):
            if schedule is None or slot is None or len(fires) == _FIRES_SHOWN:
                break
            end = self.find_window_end(slot)
            at = slot if end is None else end
            if (end is None or self.catch_up is not CatchUp.NONE) and at not in fires:
                fires.append(at.astimezone(zone))
            slot = schedule.next_after(at if end is None else at - dt.timedelta(microseconds=1))
        return tuple(fires)

    @model_serializer(mode="wrap")
    def _write(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = FlowConfig.model_fields
        return {
            name: value
            for name, value in handler(self).items()
            if name not in LATER_OPTIONS or getattr(self, name) != fields[name].default
        }


def read_flow_config(data: Mapping[str, object]) -> FlowConfig:
    """RejectedError names each option that is wrong; also a schedule that comes no more, or in windows only."""
    try:
        config = FlowConfig.model_validate(data)
    except ValidationError as error:
        # Without its cause: pydantic's own text repeats what was found.
        raise refuse(error, FlowConfig) from None
    schedule, now = config.parse_schedule(), dt.datetime.now(dt.UTC)
    has_slots = schedule is not None and not schedule.is_continuous
    if schedule is not None and has_slots and schedule.next_after(now) is None:
        raise RejectedError("it does not come any more", field="schedule", hint="Write years that are to come.")
    for number, window in enumerate(config.windows):
        if window.start == window.end:
            raise RejectedError(
                f"expected another time than the start, {window.start}",
                field=f"windows[{number}].end",
                hint="Pause the flow if it is not to run at all.",
            )
    if not leave_time([window.daily for window in config.windows]):
        raise RejectedError(
            "they leave no time of the week", field="windows", hint="Pause the flow if it is not to run at all."
        )
    if has_slots and config.catch_up is CatchUp.NONE and not config.list_next_fires(None, now):
        raise RejectedError(
            "the schedule has no slot outside of them",
            field="windows",
            hint="With catch_up: none, a slot in a window is left out. Write catch_up: latest, or another schedule.",
        )
    return config
