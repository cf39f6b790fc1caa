"""The world of a step: the destination's file system, and other ports that the step asks for by type.

    world.fs                          the destination's own file system
    world.get(FileSystem, uri)        another one
    world.get(Catalogue, "warehouse") any other type for which the process has an opener

Openers come with a kind of step (``StepKind.opens``) or from ``register_port``. All steps that are executed together
share the ports that a world opened; the ports are closed after the steps.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import PurePosixPath
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self, TypeVar, cast

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.named_files import NamedFiles, require_named_files
from gobblin_assets.fs.object_listings import find_free_names
from gobblin_assets.fs.objects import HoldsObjects, ObjectFiles, UploadId, require_objects
from gobblin_assets.fs.registry import open_file_system as open_registered
from gobblin_assets.model.files import FileIdentity

T = TypeVar("T")

OpenFileSystem = Callable[[str], tuple[FileSystem, str]]
"""From a destination's URI to its file system, and the path of its root there."""

OpenPort = Callable[[str], AbstractContextManager[T]]

# With more files than this in one directory, one listing is cheaper than a look at each name.
_LISTING_WORTH: Final = 16

_NOTHING_CAPTURED: Final[Mapping[str, str]] = MappingProxyType({})

_openers: Final[dict[object, OpenPort[Any]]] = {}


def register_port(port: Callable[..., T], opener: OpenPort[T]) -> None:
    """Let steps of this process ask for ``port``, a type or a protocol. Another opener of it: RejectedError."""
    if _openers.setdefault(port, opener) is not opener:
        raise RejectedError(
            f"an opener of {_name_of(port)} is registered already",
            field="port",
            hint="Register one opener of a type in each process.",
        )


class StepPorts:
    """The ports that the steps of one execution opened. A context manager: leaving it closes all of them.

    ``suspects_uploads``: whoever only looks asks for each upload, since another process may have used it up before.
    """

    def __init__(self, open_file_system: OpenFileSystem = open_registered, *, suspects_uploads: bool = False) -> None:
        self._open_file_system = open_file_system
        self.suspects_uploads = suspects_uploads
        self._opened: dict[tuple[object, str], object] = {}
        self._closing = ExitStack()
        self.tried: set[UploadId] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._closing.__exit__(kind, error, traceback)
        except (GobblinError, OSError):
            raise
        except Exception as second:
            if second is error:
                raise
            raise RetryableError(f"what the steps opened can't be closed: {type(second).__name__}") from second

    def get(self, port: Callable[..., T], uri: str) -> T:
        if (port, uri) not in self._opened:
            self._opened[port, uri] = self._open(port, uri)
        return cast("T", self._opened[port, uri])

    def _open(self, port: object, uri: str) -> object:
        if port is FileSystem:
            return self._open_file_system(uri)[0]
        if port not in _openers:
            raise RejectedError(
                f"a step asks for {_name_of(port)}, and this process has no opener of it",
                field="port",
                hint="Name it in `opens` of the step's kind, or call register_port.",
            )
        return self._closing.enter_context(_openers[port](uri))


class StepWorld:
    """The destination's file system ``fs``, listings made once and used for many steps, and other ports.

    A world is for one pass. A later pass takes a new one: its listings must not be older than the pass. ``captured``:
    the directories of attempts that were captured, as the log has them, with the names that they have now.
    """

    def __init__(self, fs: FileSystem, ports: StepPorts, captured: Mapping[str, str] = _NOTHING_CAPTURED) -> None:
        self.fs = fs
        self._ports = ports
        self._captured = captured
        self._listed: dict[str, dict[str, FileIdentity]] = {}
        self._made: set[str] = set()
        self._free: frozenset[str] = frozenset()
        self._named_files: NamedFiles | None = None

    @property
    def named_files(self) -> NamedFiles:
        """``fs``, where files can be published at given names. RejectedError if it can't do that."""
        if self._named_files is None:
            self._named_files = require_named_files(self.fs)
        return self._named_files

    @property
    def objects(self) -> ObjectFiles:
        """The store of ``fs``. RejectedError if it holds files."""
        return require_objects(self.fs)

    @property
    def calls_at_once(self) -> int:
        """How many independent steps are worth doing at once."""
        return self.fs.calls_at_once if isinstance(self.fs, HoldsObjects) else 1

    def note_try(self, upload: UploadId) -> None:
        """Remember, for all passes of this execution, that the upload was to be completed."""
        self._ports.tried.add(upload)

    def may_be_used_up(self, upload: UploadId) -> bool:
        """Whether it is worth asking for the upload: this execution has tried to complete it, or suspects all."""
        return self._ports.suspects_uploads or upload in self._ports.tried

    def get(self, port: Callable[..., T], uri: str) -> T:
        """The port of the type ``port`` under this URI. RejectedError if the process has no opener of that type."""
        return self._ports.get(port, uri)

    def locate(self, staging: str) -> str:
        """The directory of an attempt as it is named now."""
        return self._captured.get(staging, staging)

    def expect(self, paths: Iterable[str]) -> None:
        """Announce the files that will be looked up, so that crowded directories are listed once.

        In a store: the names that should be free.
        """
        if isinstance(self.fs, HoldsObjects):
            self._free = find_free_names(self.objects, paths)
            return
        crowds: dict[str, int] = defaultdict(int)
        for path in paths:
            crowds[str(PurePosixPath(path).parent)] += 1
        for directory, count in crowds.items():
            if count > _LISTING_WORTH and directory not in self._listed:
                self._listed[directory] = dict(self.list_directory(directory))

    def find_identity(self, path: str) -> FileIdentity | None:
        """The identity of the file at ``path``; None if there is no file."""
        pure = PurePosixPath(path)
        listed = self._listed.get(str(pure.parent))
        return self.fs.find_identity(path) if listed is None else listed.get(pure.name)

    def was_free(self, path: str) -> bool:
        """Whether this pass's listing of the store found nothing there. False also if it was not asked."""
        return path in self._free

    def list_directory(self, directory: str) -> Mapping[str, FileIdentity]:
        """All files below ``directory``, by their names relative to it."""
        prefix = len(directory) + 1
        return {stat.path[prefix:]: stat.identity for stat in self.fs.list_files(directory)}

    def make_directories(self, directory: str) -> None:
        """Make the directory and its missing parents, once for all steps of the pass."""
        if directory not in self._made:
            self.fs.make_directories(directory)
            self._made.add(directory)


def _name_of(port: object) -> str:
    return str(getattr(port, "__qualname__", port))
