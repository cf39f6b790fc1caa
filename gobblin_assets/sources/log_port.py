"""The port of logs that sinks read: vnodes of records, cut into epochs by barriers.

A **vnode** is one ordered part of a log (a partition of a topic) and the key of one watermark. An **epoch** is what
lies between two barriers. Within an epoch a log may cut and order its chunks anew at each reading: ``chunk_id`` says
nothing, and the end of an epoch is the finest place at which a reader may stop and go on. A position is the place of a
barrier in a vnode: everything before it belongs to earlier epochs. The items are those of RisingWave's log store.
"""

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

import pyarrow as pa

from gobblin_assets.errors import GobblinError

NEVER_CUT: Final[Mapping[str, int]] = MappingProxyType({})
"""No vnode has an epoch yet."""


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """Records of one vnode, as the log has them: not decoded. They belong to the epoch of the next ``Barrier``."""

    vnode: str
    chunk: pa.RecordBatch
    chunk_id: int


@dataclass(frozen=True, slots=True)
class Barrier:
    """The end of an epoch of the vnodes in ``positions``: where each of them is now. Numbers of epochs only grow.

    ``at``: the time of the barrier, by the log. Only at a barrier with ``is_checkpoint`` a reader may cut.
    ``facts``: of a vnode, what is to be kept with its dataset by the publication that ends here. ``histories``: those
    of the positions, as of a ``Watermark``, as far as they are known.
    """

    epoch: int
    positions: Mapping[str, int]
    is_checkpoint: bool
    at: dt.datetime
    facts: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    histories: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UpdateVnodeBitmap:
    """From here on the reader gives items of these vnodes. What came before it must be cut first."""

    vnodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class VnodeFailure:
    """The log does not go on for this vnode, of which the reader gives nothing more. The others go on."""

    vnode: str
    error: GobblinError


LogItem = StreamChunk | Barrier | UpdateVnodeBitmap | VnodeFailure


class LogReader(Protocol):
    """A reader of some vnodes of one log, for one thread."""

    def assign(self, positions: Mapping[str, int], *, epochs: Mapping[str, int] = NEVER_CUT) -> None:
        """Read exactly these vnodes from now on, each from its position; the next item is an UpdateVnodeBitmap.

        A vnode that was read before goes on where it was if its position is the one of its last barrier: records that
        were given behind that barrier are not given again. ``epochs`` are those of the barriers at the positions, also
        of barriers that another reader gave; a vnode that was never cut has none. Later epochs are above all of them.
        """
        ...

    def read(self, *, wait_s: float) -> Iterator[LogItem]:
        """The items that are there, or come within ``wait_s``. Ends after at most ``wait_s`` and some.

        What fails for one vnode alone is an item. Raises, for all vnodes:
            RejectedError: a position is no place of the log any more, or the log refuses the reader.
            RetryableError: the log is out of reach.

        """
        ...

    def rewind(self, vnode: str, position: int) -> None:
        """Read the vnode again from a position that was the place of a barrier."""
        ...

    def truncate(self, published: Mapping[str, int]) -> None:
        """Nothing before these positions is needed any more: it is published. A log may drop it, or only note it.

        ``published``: of all vnodes of the stream that were ever begun, also of those that this reader does not have.
        """
        ...

    def measure_lag(self) -> Mapping[str, int]:
        """How many positions of each vnode that is read lie between its last barrier and the end of the log."""
        ...

    def close(self) -> None: ...
