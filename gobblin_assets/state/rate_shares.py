"""Shares of rates that several drivers keep together: each leases a share, and keeps below its part of the rate.

The promise: at any time at most ``SharedRate.shares`` holders have a share of one name, by the database's clock. A
share that runs out is free again. Not promised: that a holder which lost its share does nothing any more; it stops
within its lease, unless its process is paused.
"""

import uuid
from dataclasses import dataclass
from typing import Protocol

from gobblin_assets.errors import RejectedError


@dataclass(frozen=True, slots=True)
class SharedRate:
    """The rate ``name`` in equal ``shares``; at least one of bytes and files a second."""

    name: str
    bytes_per_s: float | None
    files_per_s: float | None
    shares: int

    @property
    def definition(self) -> str:
        """Equal for equal rates. Holders that understood a name differently would exceed the rate of one of them."""
        return f"{self.bytes_per_s or 'any'} bytes/s, {self.files_per_s or 'any'} files/s, {self.shares} shares"


class RateShareStore(Protocol):
    """Implemented by ``state.postgres``; the fake of the simulated world passes the same contract suite."""

    def take(self, rate: SharedRate, holder: uuid.UUID, *, ttl_s: float) -> bool:
        """Lease a free share for ``holder``, without waiting; False if there is none. A share that it has is renewed.

        RejectedError if others hold shares of a rate of this name that is defined otherwise.
        """
        ...

    def renew(self, rate: SharedRate, holder: uuid.UUID, *, ttl_s: float) -> bool:
        """Extend the holder's lease; False if it has none any more. One that ran out and is still free is extended."""
        ...

    def release(self, rate: SharedRate, holder: uuid.UUID) -> None:
        """End the holder's lease, if it has one."""
        ...


def refuse_definition(rate: SharedRate, found: str) -> RejectedError:
    """The error for a name that others use for another rate now."""
    return RejectedError(
        f"the rate {rate.name!r} is {rate.definition} here, and {found} for a job that holds a share of it now",
        field="rate",
        hint="Write the same rate in every job that shares it, or give this one another name.",
    )
