"""The Java that Spark will run on, looked for in the same places as by Spark's own scripts."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gobblin_assets.errors import RejectedError

JAVA_VERSIONS: Final = (17, 21)
"""The versions that Spark 4 is tested on."""

JAVA_ANSWER_S: Final = 30.0
"""A JVM prints its version in a tenth of a second; a loaded machine may take a few."""

_WANTED: Final = " or ".join(map(str, JAVA_VERSIONS))
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


def check_java(environment: Mapping[str, str] | None = None) -> int:
    """The major version of the Java in ``JAVA_HOME``, else on the ``PATH``. RejectedError unless Spark takes it."""
    variables = os.environ if environment is None else environment
    java = find_java(variables)
    try:
        answer = subprocess.run(  # noqa: S603  the path is JAVA_HOME's, which Spark's scripts run as well
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_ANSWER_S, check=False, env=dict(variables)
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _refuse(f"{java}, which does not run ({error})") from error
    found = _VERSION.search(answer.stderr) or _VERSION.search(answer.stdout)
    if found is None:
        raise _refuse(f"{java}, which names no version")
    if int(found[1]) not in JAVA_VERSIONS:
        raise _refuse(f"version {found[1]} ({java})")
    return int(found[1])


def find_java(variables: Mapping[str, str]) -> str:
    """The path of the Java in ``JAVA_HOME``, else on the ``PATH``. RejectedError if there is none."""
    if home := variables.get("JAVA_HOME"):
        java = Path(home, "bin", "java")
        if not java.is_file():
            raise _refuse(f"no bin/java in JAVA_HOME ({home})")
        return str(java)
    found = shutil.which("java", path=variables.get("PATH", ""))
    if found is None:
        raise _refuse("none")
    return found


def _refuse(found: str) -> RejectedError:
    return RejectedError(
        f"expected version {_WANTED}, found {found}.",
        field="java",
        hint=f"Install OpenJDK {_WANTED} (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME to one.",
    )
