"""Reasons of JSON records that are dead letters, in the order in which they are looked for. None shows any content."""

from typing import Final

NO_UTF8: Final = "it is not UTF-8"
MISFIT: Final = "it is not one JSON value whose fields fit the schema"
ROUNDED: Final = "a number or a time of it is not exact in its column, or beyond it"
DOUBLED: Final = "it has a key twice, or one that differs from a column by case alone"
HALF_PAIR: Final = "it has half of a pair of surrogates"
