"""Linux's rename that refuses to replace anything, called through ctypes since Python does not offer it.

See renameat2(2). File systems that do not know the flag answer EINVAL, old kernels ENOSYS.
"""

import ctypes
import errno
import os
import platform
from collections.abc import Callable
from typing import Any, Final

ExclusiveRename = Callable[[str, str], None]
"""Takes source and target as absolute paths; raises the OSError that the kernel gave."""

UNSUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""Error codes that mean "not supported". EINVAL is also the error of moving a directory into itself."""

_AT_FDCWD: Final = -100
_RENAME_NOREPLACE: Final = 1
# From the kernel's tables, for C libraries that have the kernel's call but no function for it.
_SYSTEM_CALLS: Final = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "ppc64le": 357, "s390x": 347}


def find_exclusive_rename() -> ExclusiveRename | None:
    """The kernel's call, by the C library's function or by its number; None off Linux."""
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
            ctypes.c_uint(_RENAME_NOREPLACE),
        )
        if result != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), source, None, target)

    return rename
