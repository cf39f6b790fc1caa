"""Linux's renames that refuse to replace anything, or that exchange two names, by ctypes: Python does not offer them.

See renameat2(2). File systems that do not know a flag answer EINVAL, old kernels ENOSYS.
"""

import ctypes
import errno
import os
import platform
from collections.abc import Callable
from typing import Any, Final

KernelRename = Callable[[str, str], None]
"""Takes two names as absolute paths; raises the OSError that the kernel gave."""

UNSUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""Error codes that mean "not supported". EINVAL is also the error of moving a directory into itself."""

_AT_FDCWD: Final = -100
_RENAME_NOREPLACE: Final = 1
_RENAME_EXCHANGE: Final = 2
# From the kernel's tables, for C libraries that have the kernel's call but no function for it.
_SYSTEM_CALLS: Final = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "ppc64le": 357, "s390x": 347}


def find_exclusive_rename() -> KernelRename | None:
    """The rename that never replaces; None off Linux."""
    return _find_rename(_RENAME_NOREPLACE)


def find_exchange() -> KernelRename | None:
    """The exchange of two existing names in one moment; None off Linux."""
    return _find_rename(_RENAME_EXCHANGE)


def _find_rename(flag: int) -> KernelRename | None:
    """The kernel's call, by the C library's function or by its number."""
    if platform.system() != "Linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    if hasattr(library, "renameat2"):
        function: Any = library.renameat2
        leading: tuple[ctypes.c_long, ...] = ()
    elif platform.machine() in _SYSTEM_CALLS:
        function = library.syscall
        leading = (ctypes.c_long(_SYSTEM_CALLS[platform.machine()]),)
    else:
        return None

    def rename(source: str, target: str) -> None:
        result = function(
            *leading,
            ctypes.c_int(_AT_FDCWD),
            ctypes.c_char_p(os.fsencode(source)),
            ctypes.c_int(_AT_FDCWD),
            ctypes.c_char_p(os.fsencode(target)),
            ctypes.c_uint(flag),
        )
        if result != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), source, None, target)

    return rename
