"""Takes the right to write everywhere from this thread, and so from the processes and threads that it starts by fork.

A process of root's keeps all its other rights: it owns what it makes, and reaches the log. Whoever is not root has no
such right.
"""

import ctypes
from typing import Final

_VERSION: Final = 0x20080522
_CAP_DAC_OVERRIDE: Final = 1


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Rights(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def give_up_writing_everywhere() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    header, rights = _Header(_VERSION, 0), (_Rights * 2)()
    if libc.capget(ctypes.byref(header), rights) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    for kept in ("effective", "permitted"):
        setattr(rights[0], kept, getattr(rights[0], kept) & ~(1 << _CAP_DAC_OVERRIDE))
    if libc.capset(ctypes.byref(header), rights) != 0:
        raise OSError(ctypes.get_errno(), "capset")
