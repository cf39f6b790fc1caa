"""Finds the ``Destination`` of a job by the scheme of its URI.

A package offers a destination by an entry point of the group ``gobblin_assets.destinations``. The entry point's name is
the scheme, its value a ``DestinationFactory``. The package must also offer a file system of the same scheme, because
readers of published files and recoveries open the URI by ``fs.registry``. A scheme with only a file system gets
directories of that file system as destinations.
"""

from collections.abc import Callable
from typing import Final

from gobblin_assets.destinations.files.rooted import Directories, RowFiles
from gobblin_assets.extensions import Extensions
from gobblin_assets.fs.registry import scheme_of
from gobblin_assets.run.destination import Destination, DestinationRequest

DestinationFactory = Callable[[DestinationRequest], Destination]
"""Connects to nothing. RejectedError names the field ``destination``."""


def open_directories(request: DestinationRequest) -> Directories:
    """Directories of any file system that can rename them."""
    return Directories(request)


def open_row_files(request: DestinationRequest) -> RowFiles:
    """Prefixes of an object store, and directories of HDFS."""
    return RowFiles(request)


DESTINATIONS: Final = Extensions[DestinationFactory](
    group="gobblin_assets.destinations",
    noun="scheme",
    option="destination",
    accepts=callable,
    built_in={
        "file": "gobblin_assets.destinations.registry:open_directories",
        "hdfs": "gobblin_assets.destinations.registry:open_row_files",
        "s3": "gobblin_assets.destinations.registry:open_row_files",
    },
)


def register_destination(scheme: str, factory: DestinationFactory) -> None:
    """Make a scheme known to this process only. RejectedError if the scheme is known already."""
    DESTINATIONS.register(scheme, factory)


def open_destination(request: DestinationRequest) -> Destination:
    """The destination of a run. Nothing is connected to or made yet."""
    scheme = scheme_of(request.root_uri)
    return DESTINATIONS.get(scheme)(request) if DESTINATIONS.has(scheme) else open_directories(request)
