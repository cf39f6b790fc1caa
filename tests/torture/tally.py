"""Events, counted where they were seen, and the table of the counts."""

import threading
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Tally:
    """Counts by name, and the differences that decide the verdict. Any thread may add."""

    counts: "Counter[str]" = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def add(self, name: str, count: int = 1) -> None:
        with self._lock:
            self.counts[name] += count

    def violate(self, text: str) -> None:
        """Report a difference, once."""
        with self._lock:
            if text not in self.violations:
                self.violations.append(text)

    def skip(self, name: str, reason: str) -> None:
        """Note an injection that this machine does not allow."""
        with self._lock:
            self.skipped[name] = reason

    def of(self, *names: str) -> int:
        with self._lock:
            return sum(self.counts[name] for name in names)


def render_table(title: str, lines: list[tuple[str, str]]) -> str:
    """Two columns: the name and the count."""
    width = max(len(name) for name, _value in lines)
    return "\n".join([title, *(f"  {name:<{width}}  {value:>10}" for name, value in lines)])
