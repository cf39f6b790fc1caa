"""`service serve` whose days of keeping are minutes: ``python -m benchmarks.soak_node ARGUMENTS``.

What is kept for days by a service would only grow in a soak of two hours. All else is as it is shipped.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from gobblin_assets.cli import main
from gobblin_assets.service import opening
from gobblin_assets.service.opening import OpenService, open_service

FORGET_EVERY_S: Final = 60.0
_MINUTES_OF_A_DAY: Final = 1440


@contextmanager
def open_hurried_service(*given: Any, kept_days: float, **options: Any) -> Iterator[OpenService]:
    """The service, with ``kept_days`` as minutes."""
    with open_service(*given, kept_days=kept_days / _MINUTES_OF_A_DAY, **options) as opened:
        yield opened


if __name__ == "__main__":
    opening.FORGET_EVERY_S = FORGET_EVERY_S  # type: ignore[misc]  # a soak does not wait for an hour
    opening.open_service = open_hurried_service  # type: ignore[assignment]  # it takes what the command gives
    main(prog_name="gobblin-assets")
