"""Processes whose clocks are wrong: a library of ours is loaded before theirs. Their waits are as long as ever."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from gobblin_assets.settings import cache_folder

_AHEAD = "TEST_CLOCK_AHEAD_S"

_SOURCE = f"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long ahead(void) {{
  const char *text = getenv("{_AHEAD}");
  return text ? atol(text) : 0;
}}

int clock_gettime(clockid_t id, struct timespec *at) {{
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int done = real(id, at);
  if (!done && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += ahead();
  return done;
}}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {{
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return 0;
}}

time_t time(time_t *at) {{
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}}
"""


@cache
def build_clock() -> Path | None:
    """The library; None where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = cache_folder() / f"clock-{hashlib.sha256(_SOURCE.encode()).hexdigest()[:16]}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        part = library.with_suffix(f".{os.getpid()}")
        command = [compiler, "-shared", "-fPIC", "-O2", "-x", "c", "-", "-o", str(part), "-ldl"]
        subprocess.run(command, input=_SOURCE, text=True, check=True)
        part.rename(library)
    return library


def shift_clock(by_s: int) -> Mapping[str, str]:
    """The environment of a process whose clock is ahead by so many seconds."""
    library = build_clock()
    if library is None:
        pytest.skip("there is no compiler of C")
    return {"LD_PRELOAD": str(library), _AHEAD: str(by_s)}
