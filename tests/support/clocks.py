"""Processes whose clocks are wrong, by Debian's library faketime."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from demo.debian_programs import find_debian_files


@cache
def find_faketime() -> Path | None:
    """The library, for programs of several threads; None where it can't be brought."""
    found = find_debian_files("faketime", ["libfaketime"], ["*/libfaketimeMT.so.1"])
    return found[0] if found else None


def shift_clock(by_s: int) -> Mapping[str, str]:
    """The environment of a process whose clock is ahead by so many seconds. Its waits are as long as ever."""
    library = find_faketime()
    if library is None:
        pytest.skip("apt can't bring libfaketime")
    return {"LD_PRELOAD": str(library), "FAKETIME": f"{by_s:+d}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
