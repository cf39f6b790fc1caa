"""The tables or topics of a connection: asked for once by ``gobblin-assets discover``, then read from a file.

Nothing connects while definitions load, so definitions read this file. Patterns are applied when the file is read, and
not when it is written: changing a pattern needs no new discovery.
"""

import contextlib
import datetime as dt
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.settings import read_settings
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.source_spec import SourceSpec

_FORMAT: Final = 1
_SHOWN_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Discovery:
    """The names of all tables of ``connection`` that were found, sorted, and the patterns of that time."""

    connection: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    tables: tuple[str, ...]
    found_at: dt.datetime

    def selected(self, source: SourceSpec) -> tuple[str, ...]:
        """The tables that the source's present patterns choose.

        RejectedError for another connection than the discovered one, since its tables are unknown.
        """
        if source.connection != self.connection:
            raise RejectedError(
                f"the tables of {self.connection!r} were discovered, found {source.connection!r}",
                field="source.connection",
                hint="Run gobblin-assets discover again.",
            )
        return select_tables(self.tables, source)


def select_tables(names: Iterable[str], source: SourceSpec) -> tuple[str, ...]:
    """Names that some ``include`` pattern matches and no ``exclude`` pattern, sorted; case counts.

    Patterns are those of file names (``*``, ``?``, ``[...]``) over the whole ``schema.table``.
    """
    return tuple(
        sorted(
            name
            for name in set(names)
            if any(fnmatchcase(name, pattern) for pattern in source.include)
            and not any(fnmatchcase(name, pattern) for pattern in source.exclude)
        )
    )


def find_changes(known: Discovery, now: Iterable[str], source: SourceSpec) -> str | None:
    """A sentence on the chosen tables that were added or removed since ``known``; None when there are none."""
    changes = describe_changes(known.selected(source), select_tables(now, source))
    if changes is None:
        return None
    return f"The tables of {known.connection} have changed ({changes}). Run gobblin-assets discover."


def describe_changes(known: Iterable[str], now: Iterable[str]) -> str | None:
    """Which names are new and which are gone, in a few words; None when they are the same."""
    before, after = set(known), set(now)
    changes = [
        f"{word}: {', '.join(sorted(names)[:_SHOWN_MAX])}{', …' if len(names) > _SHOWN_MAX else ''}"
        for word, names in (("new", after - before), ("gone", before - after))
        if names
    ]
    return "; ".join(changes) or None


def discovery_of(job: JobSpec) -> Discovery | None:
    """What was discovered for the job's patterns, in GOBBLIN_HOME; None without patterns, or without a discovery."""
    return find_discovery(read_settings().discovery_path(job.job)) if job.source.include else None


def find_discovery(path: Path) -> Discovery | None:
    """Read the state file; None when there is none. CorruptionError when it is not one."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, OSError) as error:
        raise CorruptionError(f"{path} can't be read: {error}", hint="Remove it and discover again.") from error
    try:
        if data["format"] != _FORMAT:
            raise ValueError(f"format {data['format']!r}")
        include, exclude, tables = (_read_names(data[key]) for key in ("include", "exclude", "tables"))
        return Discovery(str(data["connection"]), include, exclude, tables, dt.datetime.fromisoformat(data["found_at"]))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptionError(
            f"{path} is no discovery of this version ({error!r})", hint="Remove it and discover again."
        ) from error


def write_discovery(path: Path, names: Sequence[str], source: SourceSpec, found_at: dt.datetime) -> Discovery:
    """Write the state file, all of it or nothing. ``names`` are all tables of the connection."""
    found = Discovery(source.connection, source.include, source.exclude, tuple(sorted(set(names))), found_at)
    data = {
        "format": _FORMAT,
        "connection": found.connection,
        "include": found.include,
        "exclude": found.exclude,
        "tables": found.tables,
        "found_at": found_at.isoformat(),
    }
    write_state(path, data)
    return found


def write_state(path: Path, data: Mapping[str, object]) -> None:
    """Write a state file, all of it or nothing. RejectedError if its folder can't be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Beside the target, so that the replacement is one rename within a file system.
        handle, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(data, file, indent=1, ensure_ascii=False)
                file.flush()
                os.fsync(file.fileno())
            Path(unfinished).replace(path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                Path(unfinished).unlink()
            raise
    except OSError as error:
        raise RejectedError(
            f"{path} can't be written: {error.strerror}", field="home", hint="Make its folder writable."
        ) from error


def _read_names(data: object) -> tuple[str, ...]:
    if not isinstance(data, list) or not all(isinstance(name, str) for name in data):
        raise ValueError(f"expected a list of names, found {data!r}")
    return tuple(data)
