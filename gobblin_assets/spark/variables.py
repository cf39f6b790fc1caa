"""Variables by which PySpark and spark-submit take a master or a server that nobody gave to the product.

PySpark refuses a remote beside MASTER, in a text with the whole address and its token; spark-submit takes
DEPLOY_MODE and SPARK_REMOTE over what it is given. Variables of sizes, folders and Java options stay: they are how a
site sets Spark up.
"""

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

_ADDRESSES: Final = frozenset({"MASTER", "DEPLOY_MODE", "SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE"})
_SUBMIT_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_ADDRESS_OPTIONS: Final = ("--master", "--remote", "--deploy-mode")


def without_addresses(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables, except those that say where Spark runs."""
    kept = {name: value for name, value in environment.items() if name not in _ADDRESSES}
    if _SUBMIT_ARGUMENTS in kept:
        kept[_SUBMIT_ARGUMENTS] = _drop_address_options(kept[_SUBMIT_ARGUMENTS])
    return kept


@contextmanager
def own_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """The process's environment inside the block: ``variables`` where it has none, and no address of another Spark.

    PySpark reads it, and hands it on to the processes that it starts.
    """
    before = dict(os.environ)
    inside = {**variables, **without_addresses(before)}
    changed = {name for name in {*before, *inside} if before.get(name) != inside.get(name)}
    _set(inside, changed)
    try:
        yield
    finally:
        _set(before, changed)


def _set(values: Mapping[str, str], names: set[str]) -> None:
    for name in names:
        if name in values:
            os.environ[name] = values[name]
        else:
            os.environ.pop(name, None)


def _drop_address_options(text: str) -> str:
    kept: list[str] = []
    words = iter(shlex.split(text))
    for word in words:
        if word in _ADDRESS_OPTIONS:
            next(words, None)
        elif not word.startswith(tuple(f"{option}=" for option in _ADDRESS_OPTIONS)):
            kept.append(word)
    return shlex.join(kept)
