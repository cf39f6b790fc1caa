"""Says in one line what this machine lacks to set the project up: run by make, before there is anything installed.

Written in the Python of any version 3, with nothing but the standard library.
"""

import sys
from pathlib import Path

PYTHON_OLDEST = (3, 11)
PYTHON_NEWEST = (3, 13)


def find_python_fault(found):  # noqa: ANN001, ANN201  annotations that old Pythons could not read are not worth it
    """One line about the interpreter that runs this, or None."""
    if PYTHON_OLDEST <= tuple(found[:2]) <= PYTHON_NEWEST:
        return None
    return (
        f"python: expected version 3.{PYTHON_OLDEST[1]} to 3.{PYTHON_NEWEST[1]}, found {found[0]}.{found[1]} "
        f"({sys.executable}). Install one, and say make PYTHON=python3.{PYTHON_NEWEST[1]} ..."
    )


def find_java_fault():  # noqa: ANN201  the same
    """One line about Java, or None."""
    # Only here: this import needs a Python that was found new enough. Neither module needs anything installed.
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from gobblin_assets.errors import RejectedError  # noqa: PLC0415  the same
    from gobblin_assets.spark.java import check_java  # noqa: PLC0415  the same

    try:
        check_java()
    except RejectedError as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(find_python_fault(sys.version_info) or (find_java_fault() if "java" in sys.argv[1:] else None))
