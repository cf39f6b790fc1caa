"""The place where an attempt writes: a directory of its own beside the destination, derived from the attempt's id."""

import re
import uuid
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from gobblin_assets.model.state import AttemptId, SequenceId

STAGING_NAME: Final = ".staging"
MARKERS_NAME: Final = ".markers"
SET_ASIDE_NAME: Final = ".set-aside"

SLOTS: Final = "slots"
"""In an attempt's directory: the versions that its steps took from their names."""

MARKERS_KEPT: Final = 256
"""Publications of a dataset that storage remembers: ten days of hourly ones. More would slow the check of each run."""

_FINAL_NAME: Final = re.compile(r"(?P<sequence>[0-9a-f]{32})-\d+")


def staging_root(job_directory: str) -> str:
    """The hidden sibling of a job's datasets that holds the attempts."""
    return f"{job_directory}/{STAGING_NAME}"


def staging_directory(job_directory: str, attempt_id: AttemptId) -> str:
    """The attempt's own directory, with one directory for each role below it."""
    return f"{staging_root(job_directory)}/{attempt_id.hex}"


def captured_directory(staging: str, fence: int) -> str:
    """Where cleanup and abandonment put an attempt's directory, so that processes which know its old name miss it."""
    return f"{staging}.captured-{fence}"


def final_name(sequence_id: SequenceId, number: int) -> str:
    """The directory that one winning attempt of a sequence publishes; ``number`` counts the winners."""
    return f"{sequence_id.hex}-{number}"


def published_directories(files: Iterable[str]) -> dict[SequenceId, set[str]]:
    """The directories that bear a sequence's name, of these files, by sequence."""
    found: dict[SequenceId, set[str]] = defaultdict(set)
    for path in files:
        directory = path.rpartition("/")[0]
        name = _FINAL_NAME.fullmatch(directory.rpartition("/")[2])
        if name is not None:
            found[SequenceId(uuid.UUID(hex=name["sequence"]))].add(directory)
    return found
