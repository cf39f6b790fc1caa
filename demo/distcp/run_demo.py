"""A tree is copied and changed; a run is killed between two acts; the next one completes it; both trees are compared.

Each demo starts from nothing: it first removes what an earlier demo left below .demo-distcp.
"""

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Final

from demo.distcp.trees import Description, change_source, describe, make_source
from demo.stage import act, command, console, killed_command, say_counts
from gobblin_assets.db import embedded
from gobblin_assets.settings import forget_unasked_variables

CLONE: Final = Path(__file__).resolve().parents[2]
DEMO: Final = CLONE / ".demo-distcp"
HOME: Final = DEMO / "home"
SOURCE, DESTINATION = DEMO / "source", DEMO / "copy"
JOB_FILE: Final = DEMO / "mirror.yaml"
LEASE_S: Final = 5
FAILPOINT: Final = "step_after=kill@5"

_JOB: Final = f"""\
job: mirror
kind: distcp
source: ./source
destination: ./copy
defaults: {{deletes: ours}}
datasets:
  - urn: pages
  - urn: data
lease: {{ttl_s: {LEASE_S}}}
"""


def main() -> int:
    begun = time.monotonic()
    os.chdir(CLONE)
    forget_unasked_variables(os.environ)
    start_anew()
    with act("Act 1: a tree of real files is copied"):
        say_counts("at the source", make_source(SOURCE))
        command("run", job_file())
        compare()
    with act("Act 2: files are new, rewritten and removed; the next run is killed between two acts"):
        before = describe(DESTINATION)
        say_counts("at the source", change_source(SOURCE))
        command("plan", job_file())
        killed_command(FAILPOINT, CLONE, "run", job_file())
        show_wreck(before)
    with act("Act 3: the next run completes that publication, then copies the rest"):
        time.sleep(LEASE_S + 1)
        command("run", job_file())
    with act("Act 4: the proof"):
        is_equal = compare()
        command("verify", job_file())
    embedded.stop(HOME)
    console.print(f"{'Both trees are equal' if is_equal else 'The trees differ'}, in {time.monotonic() - begun:.0f} s.")
    return 0 if is_equal else 1


def start_anew() -> None:
    if HOME.exists():
        embedded.stop(HOME)
    if DEMO.exists():
        shutil.rmtree(DEMO)
    HOME.mkdir(parents=True)
    SOURCE.mkdir()
    JOB_FILE.write_text(_JOB, encoding="utf-8")
    for name in ("GOBBLIN_DATABASE_URL", "GOBBLIN_FAILPOINT"):
        os.environ.pop(name, None)
    os.environ["GOBBLIN_HOME"] = str(HOME)


def job_file() -> str:
    return str(JOB_FILE.relative_to(CLONE))


def show_wreck(before: dict[str, Description]) -> None:
    """After the kill, each name holds its old version or its new one, and nothing else."""
    command("commit", "list", "--job", "mirror")
    wanted, found = describe(SOURCE), describe(DESTINATION)
    strange = [name for name, version in found.items() if version not in (before.get(name), wanted.get(name))]
    new = sum(before.get(name) != version for name, version in found.items())
    console.print(
        f"Names with their new version: {new}; with the old one: {len(found) - new}; with any other: {len(strange)}"
    )
    if strange:
        raise SystemExit(f"{strange[0]} is neither its old version nor its new one.")


def compare() -> bool:
    """Say how the trees differ: by name and mode, files also by bytes and time."""
    wanted, found = describe(SOURCE), describe(DESTINATION)
    differing = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    console.print(
        f"{len(wanted):,} files and directories at the source, {len(found):,} copies, {len(differing)} that differ"
    )
    for name in differing[:5]:
        console.print(f"  {name}: {wanted.get(name, 'missing')} and {found.get(name, 'missing')}")
    return not differing


if __name__ == "__main__":
    sys.exit(main())
