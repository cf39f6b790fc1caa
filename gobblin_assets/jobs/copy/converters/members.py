"""What a member of an archive may be called, and how much an archive may hold. Pure, but for what it has seen."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.destinations.claims import WORK_NAME
from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy.converters.port import ArchiveLimits, ByteSource, Member

RATIO_FREE_BYTES: Final = 16 << 20
"""Less than this is no bomb, whatever its ratio."""

_NAME_BYTES_MAX: Final = 255
_PATH_BYTES_MAX: Final = 1_024
_SHOWN_LENGTH_MAX: Final = 200


@dataclass(slots=True)
class MemberRules:
    """Judges the members of one archive in their order. ``archive``: its path, for errors; ``size_bytes``: its own."""

    archive: str
    size_bytes: int
    limits: ArchiveLimits
    _kinds: dict[str, str] = field(default_factory=dict, init=False)
    _written: set[str] = field(default_factory=set, init=False)
    _count: int = field(default=0, init=False)
    _total_bytes: int = field(default=0, init=False)

    def judge(self, member: Member) -> Member | None:
        """The member with a plain path; None for the archive's own top directory. RejectedError names the rule."""
        self._count += 1
        if self._count > self.limits.members_max:
            raise self._refuse(f"it has more than {self.limits.members_max:,} members", "members_max")
        if member.kind not in {"file", "directory"}:
            raise self._refuse(f"the member {_show(member.path)} is {member.kind}, and only files are unpacked")
        path = self._check_path(member.path)
        if not path:
            if member.kind == "file":
                raise self._refuse(f"the member {_show(member.path)} has no name")
            return None
        self._check_place(path, member)
        self._total_bytes += member.size_bytes
        self.check_size(self._total_bytes)
        return Member(path, member.size_bytes, member.kind, member.mode)

    def check_size(self, total_bytes: int) -> None:
        """Of all members so far, by their headers or as they were read."""
        if total_bytes > self.limits.bytes_max:
            raise self._refuse(f"its members have more than {self.limits.bytes_max:,} bytes", "bytes_max")
        if total_bytes > max(RATIO_FREE_BYTES, self.size_bytes * self.limits.ratio_max):
            raise self._refuse(
                f"its members have more than {self.limits.ratio_max:,} times its own {self.size_bytes:,} bytes",
                "ratio_max",
            )

    def _check_path(self, path: str) -> str:
        if "\0" in path:
            raise self._refuse(f"the member {_show(path)} has NUL in its name")
        if path.startswith("/"):
            raise self._refuse(f"the member {_show(path)} has an absolute path")
        if "\\" in path:
            raise self._refuse(f"the member {_show(path)} has a backslash in its name")
        names = [name for name in path.split("/") if name not in {"", "."}]
        if ".." in names:
            raise self._refuse(f"the member {_show(path)} has `..` in its path")
        if WORK_NAME in names:
            raise self._refuse(f"the member {_show(path)} has the name of copies' own directory, {WORK_NAME}")
        try:
            lengths = [len(name.encode()) for name in names]
        except UnicodeEncodeError:
            raise self._refuse(f"the member {_show(path)} has a name that is not UTF-8") from None
        if max(lengths, default=0) > _NAME_BYTES_MAX or sum(lengths) + len(lengths) > _PATH_BYTES_MAX:
            raise self._refuse(f"the member {_show(path)} has a name that is too long")
        if len(names) > self.limits.depth_max:
            raise self._refuse(f"the member {_show(path)} lies deeper than {self.limits.depth_max} names", "depth_max")
        return "/".join(names)

    def _check_place(self, path: str, member: Member) -> None:
        """Each name once, and no file where another member has a directory."""
        if path in self._written:
            raise self._refuse(f"two members are called {_show(path)}")
        self._written.add(path)
        for parent in _parents(path):
            if self._kinds.setdefault(parent, "directory") != "directory":
                raise self._refuse(f"the member {_show(path)} lies below {_show(parent)}, which is a file")
        if self._kinds.setdefault(path, member.kind) != member.kind:
            raise self._refuse(f"two members are called {_show(path)}: a file and a directory")

    def _refuse(self, message: str, option: str | None = None) -> RejectedError:
        hint = "Make the archive again, exclude it, or leave it packed (the converter's own exclude)."
        if option is not None:
            hint = f"If you trust the archive, raise {option}; else exclude it."
        return RejectedError(f"{self.archive}: {message}", field="converters", hint=hint, path=self.archive)


class CountedSource:
    """Bytes of which the rules hear how many there are: headers may lie, and zeros be without end."""

    def __init__(self, source: ByteSource, rules: MemberRules) -> None:
        self._source, self._rules = source, rules
        self._total_bytes = 0

    def read(self, size: int, /) -> bytes:
        content = self._source.read(size)
        self._total_bytes += len(content)
        self._rules.check_size(self._total_bytes)
        return content


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _show(path: str) -> str:
    return ascii(path if len(path) <= _SHOWN_LENGTH_MAX else f"{path[:_SHOWN_LENGTH_MAX]}…")
