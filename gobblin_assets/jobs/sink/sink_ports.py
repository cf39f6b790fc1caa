"""Everything a worker of a sink needs from outside."""

from collections.abc import Callable
from dataclasses import dataclass

from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.commit.step_world import OpenFileSystem
from gobblin_assets.fs.port import FileSystem
from gobblin_assets.model.clock import Clock
from gobblin_assets.run.destination import Destination
from gobblin_assets.run.events import NO_SINKS, Events
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_spec import JobSpec


@dataclass(frozen=True, slots=True)
class SinkPorts:
    """``fs`` is the destination's file system. ``wait(seconds)`` waits at most so long, and says whether to stop.

    ``configuration``: a digest of what the worker does to records. ``dagster_run_id``: of the Dagster run that the
    worker is, if it is one.
    """

    job: JobSpec
    stores: Stores
    destination: Destination
    open_file_system: OpenFileSystem
    fs: FileSystem
    interrupt: Callable[[AttemptRecord], None]
    clock: Clock
    say: Callable[[str], None]
    wait: Callable[[float], bool]
    configuration: str
    events: Events = NO_SINKS
    dagster_run_id: str | None = None
