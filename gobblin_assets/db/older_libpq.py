"""The libpq that psycopg 2 brings, which may be an older one than psycopg's."""

from functools import cache

import psycopg2
from psycopg2.extensions import parse_dsn


@cache
def has_parameter(name: str) -> bool:
    """Whether it has a parameter of this name."""
    try:
        parse_dsn(f"{name}=x")
    except psycopg2.ProgrammingError:
        return False
    return True
