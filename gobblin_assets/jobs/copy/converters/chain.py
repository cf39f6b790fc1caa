"""The converters of one dataset, in their order, the names that they give, and how much an archive may hold."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import BinaryIO, Final, cast

from gobblin_assets.destinations.claims import WORK_NAME
from gobblin_assets.errors import RejectedError
from gobblin_assets.extensions import Extensions
from gobblin_assets.jobs.copy.converters.converter_port import (
    Archive,
    ArchiveLimits,
    ByteSource,
    Converter,
    Member,
    OpenConverter,
    Packer,
    StreamConverter,
    Unpacker,
    read_to_end,
)
from gobblin_assets.jobs.copy.globs import Filters, parse_filters

RATIO_FREE_BYTES: Final = 16 << 20
"""Less than this is no bomb, whatever its ratio."""

_NAME_BYTES_MAX: Final = 255
_PATH_BYTES_MAX: Final = 1_024
_SHOWN_LENGTH_MAX: Final = 200


@dataclass(slots=True)
class MemberRules:
    """Rules for the members of one archive, which are judged in their order. ``archive``: its path, for errors;
    ``size_bytes``: its own.
    """

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
        """Check the size of all members so far, by their headers or as they were read."""
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
    """Bytes that are counted for the rules, since headers may lie, and zeros may have no end."""

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


COPY_CONVERTERS: Final = Extensions[OpenConverter](
    group="gobblin_assets.copy_converters",
    noun="converter",
    option="converters",
    accepts=callable,
    built_in={
        "gunzip": "gobblin_assets.jobs.copy.converters.compression:open_gunzip",
        "bunzip2": "gobblin_assets.jobs.copy.converters.compression:open_bunzip2",
        "unzstd": "gobblin_assets.jobs.copy.converters.compression:open_unzstd",
        "unlz4": "gobblin_assets.jobs.copy.converters.compression:open_unlz4",
        "gzip": "gobblin_assets.jobs.copy.converters.compression:open_gzip",
        "zstd": "gobblin_assets.jobs.copy.converters.compression:open_zstd",
        "gpg_decrypt": "gobblin_assets.jobs.copy.converters.gpg:open_gpg_decrypt",
        "gpg_encrypt": "gobblin_assets.jobs.copy.converters.gpg:open_gpg_encrypt",
        "untar": "gobblin_assets.jobs.copy.converters.tar_archives:open_untar",
        "tar": "gobblin_assets.jobs.copy.converters.tar_archives:open_tar",
        "unzip": "gobblin_assets.jobs.copy.converters.zip_archives:open_unzip",
        "zip": "gobblin_assets.jobs.copy.converters.zip_archives:open_zip",
    },
)

_CHOOSING: Final = ("include", "exclude")


@dataclass(frozen=True, slots=True)
class ChainStep:
    """A converter of the chain, in its place. ``filters``: which files the converter takes, by their paths before it,
    below the file set.
    """

    converter: Converter
    filters: Filters
    packs: bool = False
    unpacks: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """The way of one file through the chain. ``path``: where it is published, below the file set.

    ``steps``: the numbers of the converters that take it. ``is_archive``: the last of them unpacks it, into the
    directory ``path``.
    """

    path: str
    steps: tuple[int, ...] = ()
    is_archive: bool = False


@dataclass(frozen=True, slots=True)
class Chain:
    """The converters of one dataset, in their order. No converter at all is a chain too."""

    steps: tuple[ChainStep, ...] = ()

    @property
    def packer(self) -> Packer | None:
        """The one that makes one file of all. It can only be the first."""
        first = self.steps[0].converter if self.steps else None
        return first if isinstance(first, Packer) else None

    @property
    def unpacks(self) -> bool:
        """Whether archives become directories."""
        return any(step.unpacks for step in self.steps)

    def prepare(self) -> None:
        """RejectedError if this machine lacks what a converter needs."""
        for step in self.steps:
            if isinstance(step.converter, StreamConverter):
                step.converter.prepare()

    def find_route(self, path: str, begin: int = 0) -> Route:
        """The route of the file that the converter of the number ``begin`` would be the first to take."""
        taken: list[int] = []
        for number in range(begin, len(self.steps)):
            filters = self.steps[number].filters
            directory, slash, name = path.rpartition("/")
            if self.steps[number].packs or not filters.chooses(path):
                continue
            renamed = self._renaming(number).rename(name)
            if renamed is None:
                continue
            path = f"{directory}{slash}{renamed}"
            taken.append(number)
            if self.steps[number].unpacks:
                return Route(path, tuple(taken), is_archive=True)
        return Route(path, tuple(taken))

    def sort_key_of(self, key: str) -> str:
        """The place of an entry in a listing after conversion, by its key before: a directory's ends with a slash."""
        if key.endswith("/") or self.packer is not None:
            return key
        route = self.find_route(key)
        return f"{route.path}/" if route.is_archive else route.path

    @contextmanager
    def convert(self, source: ByteSource, steps: Sequence[int], path: str) -> Iterator[ByteSource]:
        """The bytes behind these steps, none of which unpacks."""
        with ExitStack() as opened:
            for number in steps:
                converted = opened.enter_context(self._stream(number).convert(source, path))
                source = _WholeSource(converted, source)
            yield source

    def read_members(
        self, source: ByteSource, file: BinaryIO, path: str, size_bytes: int, steps: Sequence[int]
    ) -> Iterator[tuple[Member, ByteSource]]:
        """The files and directories of an archive of ``size_bytes``, judged, with their bytes.

        The last of ``steps`` unpacks. RejectedError names the archive, the member and the rule.
        """
        unpacker = self.steps[steps[-1]].converter
        if not isinstance(unpacker, Unpacker):
            raise TypeError("a route to an archive ends at an unpacker")
        rules = MemberRules(path, size_bytes, unpacker.limits)
        with self.convert(source, steps[:-1], path) as content:
            counted = CountedSource(content, rules)
            whole = file if len(steps) == 1 else None
            for member, inside in unpacker.unpack(Archive(counted, whole, path, unpacker.limits.members_max)):
                judged = rules.judge(member)
                if judged is not None:
                    yield judged, inside
            if not unpacker.needs_places:
                read_to_end(counted)

    def _renaming(self, number: int) -> StreamConverter | Unpacker:
        converter = self.steps[number].converter
        if self.steps[number].packs:
            raise TypeError("a packer renames no file")
        return cast("StreamConverter | Unpacker", converter)

    def _stream(self, number: int) -> StreamConverter:
        converter = self.steps[number].converter
        if not isinstance(converter, StreamConverter):
            raise TypeError("only the last step of a route unpacks")
        return converter


class _WholeSource:
    """The bytes that a step gives. Their end counts only once the step before it has ended well, whoever had read
    enough.
    """

    def __init__(self, converted: ByteSource, before: ByteSource) -> None:
        self._converted, self._before = converted, before

    def read(self, size: int, /) -> bytes:
        content = self._converted.read(size)
        if not content:
            read_to_end(self._before)
        return content


def open_chain(written: Sequence[str | Mapping[str, object]]) -> Chain:
    """The converters as they are written in a job: a kind, or a mapping of the kind and its options.

    RejectedError names the place, such as ``converters[0].level``.
    """
    steps = [_open_step(each, f"converters[{number}]") for number, each in enumerate(written)]
    unpackers = 0
    for number, step in enumerate(steps):
        where = f"converters[{number}]"
        converter = step.converter
        if isinstance(converter, Packer) and number:
            raise RejectedError(
                "packs all files into one, so that nothing can come before it",
                field=where,
                hint="Write it first; what follows takes the archive.",
            )
        if isinstance(converter, Unpacker):
            unpackers += 1
            if converter.needs_places and number:
                raise RejectedError(
                    "reads its archives at many places, so that nothing can come before it",
                    field=where,
                    hint="Write it first, and archives that need another step into a dataset of their own.",
                )
        if unpackers > 1 or (isinstance(converter, Unpacker) and isinstance(steps[0].converter, Packer)):
            raise RejectedError(
                "a second converter of archives",
                field=where,
                hint="Archives inside of archives are not unpacked: write one of them.",
            )
    return Chain(tuple(steps))


def write_chain(written: Sequence[str | Mapping[str, object]]) -> str:
    """The chain as one text, for writers in other processes. Options hold no secret, only names of variables."""
    return json.dumps(list(written)) if written else ""


@cache
def read_chain(text: str) -> Chain:
    """The chain of ``write_chain``."""
    return open_chain(json.loads(text)) if text else Chain()


def _open_step(written: str | Mapping[str, object], where: str) -> ChainStep:
    options = {"kind": written} if isinstance(written, str) else dict(written)
    kind = options.pop("kind", None)
    if not isinstance(kind, str):
        known = ", ".join(COPY_CONVERTERS.list_names())
        raise RejectedError(f"expected a kind of converter, found {kind!r}", field=where, hint=f"Known: {known}.")
    try:
        chosen = {name: _texts(options.pop(name, ()), name) for name in _CHOOSING}
        opened = COPY_CONVERTERS.get(kind)
        filters = parse_filters(include=chosen["include"], exclude=chosen["exclude"])
        converter = opened(options)
        packs, unpacks = isinstance(converter, Packer), isinstance(converter, Unpacker)
        if not (packs or unpacks or isinstance(converter, StreamConverter)):
            raise RejectedError(
                f"{kind!a} opens a {type(converter).__name__}, which is no converter",
                field=COPY_CONVERTERS.option,
                hint="Correct the package that offers it: converters.port has the three shapes.",
            )
        return ChainStep(converter, filters, packs, unpacks)
    except RejectedError as error:
        said = error.message.removeprefix(f"{error.field}: ")
        field = where if error.field == COPY_CONVERTERS.option else f"{where}.{error.field}"
        raise RejectedError(said, field=field, hint=error.hint) from error


def _texts(found: object, name: str) -> tuple[str, ...]:
    if isinstance(found, Sequence) and not isinstance(found, str) and all(isinstance(each, str) for each in found):
        return tuple(str(each) for each in found)
    raise RejectedError(f"expected globs, found {found!r}", field=name, hint='Write a list, such as ["*.gz"].')
