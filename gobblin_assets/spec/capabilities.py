"""The words for what executors can do."""

from gobblin_assets.spec.destination_kind import DESTINATION_KINDS
from gobblin_assets.spec.job_kinds import DEFAULT_KIND, JOB_KINDS
from gobblin_assets.spec.source_spec import SOURCES


def list_known_capabilities() -> list[str]:
    """The words for what the job kinds, sources and destinations can do that this process knows."""
    sources, destinations = SOURCES.list_names(), DESTINATION_KINDS.list_names()
    return sorted(
        {
            *(f"ingest.{name}" for name in sources),
            *(f"sink.{name}" for name in sources),
            *(f"sink.into.{name}" for name in destinations),
            *(name for name in JOB_KINDS.list_names() if name != DEFAULT_KIND),
        }
    )
