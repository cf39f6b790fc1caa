"""Mounts and processes that vanish with the torture, however it ends."""

import ctypes
import os
import signal
import subprocess
from multiprocessing import forkserver
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_PR_SET_PDEATHSIG = 1


def enter_own_mounts() -> str | None:
    """Move this process and its children into a mount namespace of their own. Returns the reason if that is refused.

    No other process sees mounts in it, and they vanish with its last process.
    """
    if os.geteuid() != 0:
        return "mounting a file system needs root"
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
        return f"a mount namespace is refused: {os.strerror(ctypes.get_errno())}"
    done = subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, text=True)
    return done.stderr.strip() or "mounts can't be made private" if done.returncode else None


def mount_tmpfs(point: Path, size: str) -> str | None:
    """Returns the reason if it is refused."""
    point.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", str(point)], capture_output=True, text=True
    )
    return done.stderr.strip() or "tmpfs is refused" if done.returncode else None


def remount(point: Path, mode: str) -> bool:
    """``mode``: ``ro`` or ``rw``. False while a file is open for writing."""
    return not subprocess.run(["mount", "-o", f"remount,{mode}", str(point)], capture_output=True).returncode


def unmount(point: Path) -> None:
    subprocess.run(["umount", "-l", str(point)], capture_output=True)


def die_with_parent() -> None:
    """SIGKILL for this process of a fork server, stopped or not, when the torture is gone."""
    # The server ends when the last copy of this descriptor is closed; each of its children inherits one.
    os.close(forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]  # the module keeps it to itself
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
