"""Processor seconds of a process and all of its descendants, as the kernel counts them, to 10 ms."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
# Of the fields behind the command's name in /proc/PID/stat.
_PARENT, _USER, _CHILDREN_SYSTEM = 1, 11, 14


def tree_s(pid: int) -> float:
    """Seconds since its start of the process, of its descendants that live, and of those that were waited for."""
    stats = read_stats()
    members, found = {pid}, [pid]
    while found:
        parent = found.pop()
        children = [each for each, fields in stats.items() if int(fields[_PARENT]) == parent and each not in members]
        members.update(children)
        found += children
    ticks = sum(int(tick) for each in members & stats.keys() for tick in stats[each][_USER : _CHILDREN_SYSTEM + 1])
    return ticks / _TICKS


def read_stats() -> dict[int, list[str]]:
    """By the ids of all processes, the fields behind the command's name in /proc/PID/stat."""
    stats = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                text = (each / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                # It has ended meanwhile.
                continue
            stats[int(each.name)] = text.rpartition(")")[2].split()
    return stats
