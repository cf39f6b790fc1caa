"""Where small runners are tortured: a home with a server, two destinations, their sources, and the logs."""

import json
import random
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.torture import isolation
from tests.torture.proxy import FaultyProxy
from tests.torture.schedule import LEASE_TTL_S, ON_A_MOUNT, PROXY_FAULTS, Injection
from tests.torture.server import Victim
from tests.torture.small_runner import TortureLake
from tests.torture.tally import Tally

DATASETS_PER_LAKE: Final = 3
TMPFS_SIZE: Final = "48m"
_FIRST_ROWS: Final = 20
_FEED_EVERY_S: Final = 0.3
_NAMES: Final = (("orders", "a/b c.Ü", "päge views"), ("clicks", "x.y/z", "customers"))


class Arena:
    """Made with the first rows in the sources, nothing published, nobody running."""

    def __init__(self, home: Path, seed: str, tally: Tally, refused: str | None) -> None:
        self.home = home
        self.tally = tally
        self.victim = Victim(home, seed)
        self.logs = home / "runners"
        self.logs.mkdir()
        self._lakes = tuple(
            TortureLake(
                self.victim.url,
                str(home / name),
                urns=urns,
                lease_ttl_s=LEASE_TTL_S,
                publish_tries_max=5,
                name=f"torture_{name}",
            )
            for name, urns in zip(("disk", "small_disk"), _NAMES, strict=True)
        )
        for lake in self._lakes:
            Path(lake.root).mkdir(parents=True)
            for urn in lake.urns:
                lake.add_rows(urn, _FIRST_ROWS)
        self.mount = Path(self._lakes[1].root)
        refused = refused or isolation.mount_tmpfs(self.mount, TMPFS_SIZE)
        self.is_mounted = refused is None
        if refused is not None:
            for injection in ON_A_MOUNT:
                tally.skip(injection, refused)
        self.proxies = {
            fault: FaultyProxy(home / f"p{number}", fault, lambda: self.victim.socket_file, seed, tally)
            for number, fault in enumerate(PROXY_FAULTS)
        }

    def lakes(self) -> tuple[TortureLake, ...]:
        """As they are reached now: a server that was started again may have another port."""
        return tuple(replace(lake, database_url=self.victim.url) for lake in self._lakes)

    def disturbances(self) -> tuple[Injection, ...]:
        return ON_A_MOUNT if self.is_mounted else ()

    def count_source_rows(self) -> int:
        return sum(len(lake.source_rows(urn)) for lake in self._lakes for urn in lake.urns)

    def close(self, *, keep: bool) -> None:
        """Everything that was started is over. What is kept survives the file system that it stood on."""
        for proxy in self.proxies.values():
            proxy.close()
        self.victim.stop()
        if self.is_mounted:
            if keep:
                shutil.copytree(self.mount, self.mount.with_name("lake as it was"), symlinks=True)
            isolation.unmount(self.mount)


class Feeder:
    """Adds rows to the sources, a few at a time, now and then a heap."""

    def __init__(self, arena: Arena, seed: str) -> None:
        self._arena = arena
        self._dice = random.Random(f"{seed}/feeder")
        self._full = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._full.set()
        self._thread.join()

    def _feed(self) -> None:
        lengths = {urn: _FIRST_ROWS for lake in self._arena.lakes() for urn in lake.urns}
        while not self._full.wait(_FEED_EVERY_S):
            lake = self._dice.choice(self._arena.lakes())
            urn = self._dice.choice(lake.urns)
            start, count = lengths[urn], self._dice.choice((1, 1, 2, 2, 3, 12))
            lengths[urn] += count
            lines = (json.dumps([number, f"{urn}-{number}"]) for number in range(start, start + count))
            with lake.source_of(urn).open("a", encoding="utf-8") as out:
                out.write("".join(f"{line}\n" for line in lines))
