"""The tools that copies are measured beside: cp, rclone, rsync, and Hadoop's distcp. Each measure gets them itself."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.copy_trees import Copy
from benchmarks.peers.debian import Program, find_program, run_peer
from demo.go_programs import build_go_program
from demo.kafka.jars import resolve_jars
from gobblin_assets.errors import RejectedError

CP: Final = "cp -r"
RCLONE: Final = "rclone copy"
RCLONE_FAST: Final = "rclone copy --transfers 16 --checkers 16 --no-traverse"
RSYNC: Final = "rsync -a"
DISTCP: Final = "Hadoop's distcp, in its own process"

RCLONE_PACKAGE: Final = "github.com/rclone/rclone"
RCLONE_VERSION: Final = "v1.76.0"
HADOOP_VERSION: Final = "3.5.0"
_HADOOP: Final = (
    f"org.apache.hadoop:hadoop-distcp:{HADOOP_VERSION}",
    f"org.apache.hadoop:hadoop-client-api:{HADOOP_VERSION}",
    f"org.apache.hadoop:hadoop-client-runtime:{HADOOP_VERSION}",
    "commons-cli:commons-cli:1.9.0",
)
_RSYNC_PACKAGES: Final = ("rsync", "libpopt0", "libxxhash0", "liblz4-1", "libzstd1")


@dataclass(frozen=True, slots=True)
class CopyTools:
    """The tools by their names. ``notes``: their versions, and what is left out for which reason."""

    copies: Mapping[str, Copy]
    notes: Sequence[str]

    def only(self, *names: str) -> "CopyTools":
        return CopyTools({name: self.copies[name] for name in names if name in self.copies}, self.notes)

    def without_distcp(self) -> "CopyTools":
        """It takes some 20 ms for each small file: without Hadoop's native library it starts a process for its mode."""
        return self.only(*(name for name in self.copies if name != DISTCP))


@dataclass(slots=True)
class _Found:
    copies: dict[str, Copy] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, find: Callable[[], tuple[str, Mapping[str, Copy]]]) -> None:
        try:
            version, copies = find()
        except (RuntimeError, RejectedError) as error:
            self.notes.append(f"{name} is left out: {str(error).splitlines()[-1]}")
        else:
            self.copies |= copies
            self.notes.append(f"{name}: {version}.")


def list_copy_tools(folder: Path) -> CopyTools:
    """``folder`` takes what is not in a cache. What can't be had is left out."""
    found = _Found()
    found.add("cp", _find_cp)
    found.add("rclone", lambda: _list_rclone(find_rclone(folder / "rclone")))
    found.add("rsync", lambda: _find_rsync(folder / "rsync"))
    found.add("distcp", lambda: _find_distcp(folder / "distcp"))
    return CopyTools(found.copies, found.notes)


def find_rclone(folder: Path) -> Program:
    """Built by Go at a pinned version, or, without Go, the one of the machine or of Debian, which is older."""
    try:
        path = str(build_go_program(RCLONE_PACKAGE, RCLONE_VERSION))
    except RejectedError:
        return find_program("rclone", folder, ["rclone"])
    return Program(path, run_peer([path, "--version"]).splitlines()[0])


def run_rclone(program: Program, words: Sequence[str], more: Mapping[str, str] | None = None) -> None:
    """Without the user's own configuration. ``more``: of the environment."""
    environment = {**program.environment, "RCLONE_CONFIG": os.devnull, **(more or {})}
    run_peer([program.path, *words], environment)


def _find_cp() -> tuple[str, Mapping[str, Copy]]:
    def copy(source: Path, target: Path) -> None:
        run_peer(["cp", "-r", str(source), str(target)])

    return run_peer(["cp", "--version"]).splitlines()[0], {CP: copy}


def _list_rclone(program: Program) -> tuple[str, Mapping[str, Copy]]:
    def copying(words: Sequence[str]) -> Copy:
        return lambda source, target: run_rclone(program, [*words, str(source), str(target)])

    return program.version, {name: copying(name.split()[1:]) for name in (RCLONE, RCLONE_FAST)}


def _find_rsync(folder: Path) -> tuple[str, Mapping[str, Copy]]:
    program = find_program("rsync", folder, _RSYNC_PACKAGES)

    def copy(source: Path, target: Path) -> None:
        # With the slash it copies what is in the directory, as the others do when the target is missing.
        run_peer([program.path, "-a", f"{source}/", str(target)], program.environment)

    return program.version, {RSYNC: copy}


def _find_distcp(folder: Path) -> tuple[str, Mapping[str, Copy]]:
    jars = resolve_jars("distcp", _HADOOP)
    processors = len(os.sched_getaffinity(0))
    settings = {"hadoop.tmp.dir": folder, "mapreduce.local.map.tasks.maximum": processors}

    def copy(source: Path, target: Path) -> None:
        run_peer([
            *("java", "-cp", f"{jars}/*", "org.apache.hadoop.tools.DistCp"),
            *(f"-D{name}={value}" for name, value in settings.items()),
            *("-m", str(processors), "-pugpt", source.as_uri(), target.as_uri()),
        ])  # fmt: skip

    return f"{HADOOP_VERSION}, of Maven's {_HADOOP[0]}", {DISTCP: copy}
