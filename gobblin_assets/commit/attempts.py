"""Where an attempt writes: a directory of its own beside the destination, derived from the attempt's id."""

from typing import Final

from gobblin_assets.model.state import AttemptId, SequenceId

STAGING_NAME: Final = ".staging"
MARKERS_NAME: Final = ".markers"
SET_ASIDE_NAME: Final = ".set-aside"


def staging_root(job_directory: str) -> str:
    """The hidden sibling of a job's datasets that holds the attempts."""
    return f"{job_directory}/{STAGING_NAME}"


def staging_directory(job_directory: str, attempt_id: AttemptId) -> str:
    """The attempt's own directory; one per role stands below it."""
    return f"{staging_root(job_directory)}/{attempt_id.hex}"


def captured_directory(staging: str, fence: int) -> str:
    """Where cleanup and abandonment put an attempt's directory, out of reach of those who know its name."""
    return f"{staging}.captured-{fence}"


def final_name(sequence_id: SequenceId, number: int) -> str:
    """The directory that one winning attempt of a sequence publishes; ``number`` counts the winners."""
    return f"{sequence_id.hex}-{number}"
