"""Manifests: JSON lines that name files to copy or to delete, their finder, and the listing of exactly these files.

``path`` is relative to the source's root and to the destination. ``set`` is the key of the file set: all lines have
one, or none, and then all files are one set. ``attributes`` are those that the copy shall have: ``mode`` as octal text,
``owner`` and ``group`` as numbers, and ``mtime_ns`` in nanoseconds since 1970. With ``delete``: true, the destination's
file is removed.
"""

import datetime as dt
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.tree import EntryKind, Tree, TreeEntry
from gobblin_assets.jobs.copy.copyable import NO_ATTRIBUTES, Attributes, CopyableDataset, FileSet, NamedFile
from gobblin_assets.model.partition import HINT_OF_KEYS, find_wrong_in_key
from gobblin_assets.spec.doubled_keys import each_key_once
from gobblin_assets.spec.spec_errors import read_extension_options, suggest
from gobblin_assets.spec.spec_model import SpecModel

_OPTIONS: Final = ("path", "set", "attributes", "delete")
_ATTRIBUTES: Final = ("mode", "owner", "group", "mtime_ns")
_MODE: Final = re.compile(r"[0-7]{3,4}")
_OWNER_MAX: Final = 2**32 - 2
_MTIME_NS_MAX: Final = 2**63 - 1
_SHOWN_LENGTH_MAX: Final = 200


def parse_manifest(lines: Iterable[bytes], *, name: str) -> tuple[FileSet, ...]:
    """The file sets, ascending by key, each with its files in order of their paths. ``name`` is the manifest's.

    RejectedError names the line, such as ``files.jsonl:12``: no JSON object, an unknown word, a path that is absolute,
    has ``..`` or NUL or is no UTF-8, a path that an earlier line has, one that is below another line's file, a set that
    is no key of a partition, or one where the first line has none, or the other way round.
    """
    first_set = ""
    places: dict[str, int] = {}
    sets: dict[str, list[NamedFile]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        file_set, file = _parse_line(line, where)
        if file.path in places:
            raise _refuse(where, f"the path {file.path!a} stands in line {places[file.path]} already", "Remove one.")
        first_set = first_set if places else file_set
        if bool(file_set) is not bool(first_set):
            has, had = ("a", "none") if file_set else ("no", "one")
            raise _refuse(
                where, f"the line has {has} set, and those before it have {had}", "Write set in all lines, or in none."
            )
        places[file.path] = number
        sets.setdefault(file_set, []).append(file)
    if not places:
        raise _refuse(name, "the manifest names no file", "Write one JSON object a line.")
    _refuse_files_below_files(places, name)
    return tuple(FileSet(key, files=tuple(sorted(sets[key], key=lambda file: file.path))) for key in sorted(sets))


def _parse_line(line: bytes, where: str) -> tuple[str, NamedFile]:
    try:
        found = json.loads(line.decode(), object_pairs_hook=each_key_once)
    except (ValueError, RecursionError) as error:
        shown = line.strip()[:_SHOWN_LENGTH_MAX].decode(errors="backslashreplace")
        raise _refuse(
            where, f"expected a JSON object in UTF-8, found {shown!a}: {error}", "Correct the line."
        ) from error
    if not isinstance(found, dict):
        raise _refuse(where, f"expected a JSON object, found {type(found).__name__}", 'Write {"path": …}.')
    _refuse_unknown(found, _OPTIONS, where)
    path = parse_relative_path(found.get("path"), where)
    key = found.get("set", "")
    if not isinstance(key, str):
        raise _refuse(where, f"expected a text under set, found {key!r}", "Write the file set's key.")
    wrong = find_wrong_in_key(key)
    if wrong is not None:
        raise _refuse(where, f"expected a set without {wrong!a}, found {key[:_SHOWN_LENGTH_MAX]!a}", HINT_OF_KEYS)
    deletes = found.get("delete", False)
    if not isinstance(deletes, bool):
        raise _refuse(where, f"expected true or false under delete, found {deletes!r}", "Correct it.")
    attributes = _parse_attributes(found.get("attributes", {}), where)
    if deletes and attributes != NO_ATTRIBUTES:
        raise _refuse(where, "a file that is deleted has no attributes", "Remove delete or attributes.")
    return key, NamedFile(path, attributes, deletes)


def parse_relative_path(found: object, where: str) -> str:
    """A path of names between single slashes. RejectedError's field is ``where``."""
    if not isinstance(found, str) or not found:
        raise _refuse(where, f"expected a text under path, found {found!r}", "Write the path below the root.")
    names = found.split("/")
    problem = (
        "is absolute"
        if found.startswith("/")
        else "has a NUL character"
        if "\0" in found
        else "has the name .., which leads out of the root"
        if ".." in names
        else "has the name ., or an empty one"
        if "" in names or "." in names
        else "is no valid Unicode"
        if any("\ud800" <= letter <= "\udfff" for letter in found)
        else ""
    )
    if problem:
        raise _refuse(
            where, f"the path {found!a} {problem}", "Write names below the root, with one slash between them."
        )
    return found


def _parse_attributes(found: object, where: str) -> Attributes:
    if not isinstance(found, dict):
        raise _refuse(where, f"expected an object under attributes, found {found!r}", 'Write {"mode": "0640"}.')
    _refuse_unknown(found, _ATTRIBUTES, where)
    mode = found.get("mode")
    if mode is not None and (not isinstance(mode, str) or not _MODE.fullmatch(mode)):
        raise _refuse(where, f"expected a mode as octal text, found {mode!r}", 'Write it as in "0640".')
    return Attributes(
        mode=None if mode is None else int(mode, 8),
        owner=_parse_number(found, "owner", _OWNER_MAX, where),
        group=_parse_number(found, "group", _OWNER_MAX, where),
        mtime_ns=_parse_number(found, "mtime_ns", _MTIME_NS_MAX, where),
    )


def _parse_number(found: Mapping[str, object], word: str, largest: int, where: str) -> int | None:
    value = found.get(word)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= largest:
        raise _refuse(where, f"expected a number from 0 to {largest} under {word}, found {value!r}", "Correct it.")
    return value


def _refuse_unknown(found: Mapping[str, object], known: Sequence[str], where: str) -> None:
    unknown = sorted(found.keys() - set(known))
    if unknown:
        raise _refuse(where, f"the word {unknown[0]!a} means nothing here", suggest(unknown[0], known))


def _refuse_files_below_files(places: Mapping[str, int], name: str) -> None:
    for path, number in places.items():
        parent = path
        while parent := parent.rpartition("/")[0]:
            if parent in places:
                raise _refuse(
                    f"{name}:{number}",
                    f"the path {path!a} is below {parent!a}, which line {places[parent]} names as a file",
                    "Correct one of them.",
                )


def _refuse(where: str, message: str, hint: str) -> RejectedError:
    return RejectedError(message, field=where, hint=hint)


_OPTION: Final = "finder.path"
_SHOWN_MAX: Final = 5


class ManifestFinderOptions(SpecModel):
    """Options of the finder ``manifest``. ``path``: the manifest, an absolute path of the machine that plans.

    ``name``: the dataset's; without it, the manifest's without its ending.
    """

    path: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ManifestDatasetFinder:
    """The finder ``manifest``: one dataset, whose file sets have the manifest's files alone. The manifest is read at
    each search.
    """

    path: Path
    name: str

    def find_datasets(self, tree: Tree, root: str, now: dt.datetime) -> Sequence[CopyableDataset]:  # noqa: ARG002  a manifest says it all
        try:
            with self.path.open("rb") as lines:
                file_sets = parse_manifest(lines, name=self.path.name)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
            raise RejectedError(
                f"can't read the manifest {self.path}: {error.strerror}", field=_OPTION, hint="Correct the path."
            ) from error
        except OSError as error:
            raise RetryableError(f"can't read the manifest {self.path}: {error.strerror}") from error
        return [CopyableDataset(self.name, "", "", file_sets)]


def open_manifest_finder(options: Mapping[str, object]) -> ManifestDatasetFinder:
    """The finder of the kind ``manifest``. RejectedError names the option."""
    read = read_extension_options(ManifestFinderOptions, options, within="finder.")
    path = Path(read.path)
    if not path.is_absolute() or "\0" in read.path:
        raise RejectedError(
            f"expected an absolute path, found {read.path!a}", field=_OPTION, hint="Write it from / on."
        )
    return ManifestDatasetFinder(path, read.name or path.stem)


def list_named(tree: Tree, root: str, paths: Iterable[str], *, required: bool) -> Iterator[TreeEntry]:
    """The entries of these paths, and the directories on the way to them, in the order of listings.

    ``required``, for sources: RejectedError at the end if there is none of some name. A path that is a directory's is
    always a RejectedError.
    """
    wanted = set(paths)
    on_the_way = {path[:place] for path in wanted for place, letter in enumerate(path) if letter == "/"}
    missing = set(wanted) if required else set()
    for entry in tree.list_tree(root, on_the_way.__contains__):
        if entry.kind is EntryKind.DIRECTORY and entry.path in wanted:
            raise RejectedError(
                f"{entry.path!a} is a directory, and a manifest names files",
                field=_OPTION,
                hint="Name the files that are below it.",
            )
        if entry.path in wanted or (entry.kind is EntryKind.DIRECTORY and entry.path in on_the_way):
            missing.discard(entry.path)
            yield entry
    if missing:
        shown = ", ".join(map(ascii, sorted(missing)[:_SHOWN_MAX]))
        raise RejectedError(
            f"the manifest names {len(missing):,} files that {root} lacks, such as {shown}",
            field=_OPTION,
            hint="Make a manifest of what is there; only files with delete may be missing.",
        )
