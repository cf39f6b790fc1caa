r"""Globs as rclone writes them, as regular expressions over paths relative to a tree's root. Pure.

``*`` is any text without a slash, ``**`` any text, ``?`` one character but no slash; ``[a-z]`` is one of some
characters, ``[!a-z]`` and ``[^a-z]`` one of all others but no slash; ``{a,b}`` is one of several globs, and may be
nested. A backslash takes the next character as it is, but ``\d``, ``\s``, ``\w`` and their capitals are ASCII's
classes, as ``[[:alpha:]]`` and its like are. A leading slash binds a glob to the root; any other glob matches from the
beginning of a name to the end of the path. Letters keep their case.

Source: https://rclone.org/filtering/ ("Patterns for matching path/file names") and rclone's ``fs/filter/glob.go``.
rclone itself takes ``!`` in a class as a character, although its document says that it negates; here it negates. A
class never matches a slash here. Regular expressions between double braces are refused.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import RejectedError

_NAME_PROBE: Final = "\ud800"
"""No path holds it. Only ``*`` and ``**`` match it, so a match holds for every name in its place."""

_PATH_PROBE: Final = "\ud801"
"""No path holds it. Only ``**`` matches it, so a match holds for every path in its place."""

_ONE: Final = f"[^/{_NAME_PROBE}{_PATH_PROBE}]"
_ANY_NAME: Final = f"[^/{_PATH_PROBE}]*"
_ANY_PATH: Final = ".*"
_OF_A_NAME: Final = f"(?={_ONE})"
_FLAGS: Final = re.DOTALL | re.ASCII
_LETTER_CLASSES: Final = frozenset("dDsSwW")
_NAMED_CLASS: Final = re.compile(r"\[:([a-z]+):\]")
_NAMED_CLASSES: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "digit": "0-9",
    "lower": "a-z",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\s",
    "upper": "A-Z",
    "word": r"\w",
    "xdigit": "0-9A-Fa-f",
}


@dataclass(frozen=True, slots=True)
class Glob:
    """A parsed glob. ``whole`` matches whole paths; ``is_anchored``: it is bound to the root.

    ``on_the_way`` matches directories, with a slash behind them, below which an anchored glob may match.
    """

    text: str
    is_anchored: bool
    whole: re.Pattern[str]
    on_the_way: re.Pattern[str]

    def matches(self, path: str) -> bool:
        return self.whole.fullmatch(path) is not None

    def may_match_below(self, directory: str) -> bool:
        """False only if no path below the directory matches. A glob that is not anchored may match anywhere."""
        return not self.is_anchored or self.on_the_way.fullmatch(f"{directory}/") is not None

    def matches_all_below(self, directory: str) -> bool:
        """True only if every path below the directory matches."""
        if self.matches(f"{directory}/{_PATH_PROBE}"):
            return True
        # What matches every name at the root, and is not anchored, matches the last name of every path.
        return not self.is_anchored and self.matches(_NAME_PROBE)


def match_any(globs: Sequence[str], *, field: str) -> Callable[[str], bool]:
    """Whether a path matches one of these globs. RejectedError names ``field``."""
    parsed = [parse_glob(text, field=field) for text in globs]
    return lambda path: any(glob.matches(path) for glob in parsed)


def parse_glob(text: str, *, field: str) -> Glob:
    """RejectedError names ``field`` and the glob."""
    is_anchored = text.startswith("/")
    parts = _Parser(text, field, at=int(is_anchored)).parse()
    ways, before = [], ""
    for part in parts:
        if part.crosses:
            ways.append(before + _ANY_PATH)
            break
        before += part.pattern
        if part.pattern == "/":
            ways.append(before)
    begin = "" if is_anchored else "(?:.*/)?"
    whole = begin + "".join(part.pattern for part in parts)
    return Glob(text, is_anchored, re.compile(whole, _FLAGS), re.compile("|".join(ways) or "(?!)", _FLAGS))


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of a regular expression. ``crosses``: it may match a slash beside other text."""

    pattern: str
    crosses: bool = False


@dataclass(slots=True)
class _Parser:
    """A reader of a glob from the character ``at`` on."""

    text: str
    field: str
    at: int

    def parse(self) -> list[_Part]:
        if not self.text:
            raise self._refuse("it is empty")
        if any("\ud800" <= letter <= "\udfff" for letter in self.text):
            raise self._refuse("it is no valid Unicode")
        if "//" in self.text:
            raise self._refuse("no path has two slashes in a row")
        return self._parse_until("")

    def _parse_until(self, ends: str) -> list[_Part]:
        """The parts up to one of the characters ``ends``, which is not consumed; without any, up to the end."""
        parts: list[_Part] = []
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter in ends:
                return parts
            match letter:
                case "*":
                    parts.append(self._parse_stars())
                case "?":
                    self.at += 1
                    parts.append(_Part(_ONE))
                case "[":
                    parts.append(self._parse_class())
                case "{":
                    parts.append(self._parse_alternatives())
                case "]" | "}":
                    raise self._refuse(f"{letter} has no beginning; write \\{letter} for the character")
                case "\\":
                    parts.append(_Part(self._parse_escaped(in_class=False)))
                case _:
                    self.at += 1
                    parts.append(_Part("/" if letter == "/" else re.escape(letter)))
        if ends:
            raise self._refuse("a { has no }; write \\{ for the character")
        return parts

    def _parse_stars(self) -> _Part:
        begin = self.at
        while self.text[self.at : self.at + 1] == "*":
            self.at += 1
        if self.at - begin > 2:
            raise self._refuse("more than two stars in a row mean nothing")
        return _Part(_ANY_NAME) if self.at - begin == 1 else _Part(_ANY_PATH, crosses=True)

    def _parse_alternatives(self) -> _Part:
        if self.text.startswith("{{", self.at):
            raise self._refuse("regular expressions between {{ and }} are not taken; write globs")
        patterns, crosses = [], False
        while self.text[self.at] != "}":
            self.at += 1
            parts = self._parse_until(",}")
            patterns.append("".join(part.pattern for part in parts))
            crosses = crosses or any(part.crosses or part.pattern == "/" for part in parts)
        self.at += 1
        return _Part(f"(?:{'|'.join(patterns)})", crosses)

    def _parse_class(self) -> _Part:
        self.at += 1
        negated = self.text[self.at : self.at + 1] in ("!", "^")
        self.at += negated
        items = []
        while self.text[self.at : self.at + 1] != "]":
            if self.at >= len(self.text):
                raise self._refuse("a [ has no ]; write \\[ for the character")
            items.append(self._parse_class_item())
        if not items:
            raise self._refuse("a class has no characters")
        self.at += 1
        return _Part(f"{_OF_A_NAME}[{'^' if negated else ''}{''.join(items)}]")

    def _parse_class_item(self) -> str:
        named = _NAMED_CLASS.match(self.text, self.at)
        if named is not None:
            if named[1] not in _NAMED_CLASSES:
                raise self._refuse(f"expected a class of {', '.join(_NAMED_CLASSES)}; found {named[1]}")
            self.at = named.end()
            return _NAMED_CLASSES[named[1]]
        low = self._parse_class_letter()
        is_range = self.text[self.at : self.at + 1] == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", "")
        if not is_range:
            return low
        self.at += 1
        high = self._parse_class_letter()
        try:
            re.compile(f"[{low}-{high}]")
        except re.error as error:
            raise self._refuse("a range of characters ends before it begins") from error
        return f"{low}-{high}"

    def _parse_class_letter(self) -> str:
        if self.text[self.at] == "\\":
            return self._parse_escaped(in_class=True)
        self.at += 1
        return re.escape(self.text[self.at - 1])

    def _parse_escaped(self, *, in_class: bool) -> str:
        letter = self.text[self.at + 1 : self.at + 2]
        if not letter:
            raise self._refuse("a backslash ends it")
        self.at += 2
        if letter in _LETTER_CLASSES:
            return f"\\{letter}" if in_class else f"{_OF_A_NAME}\\{letter}"
        return "/" if letter == "/" else re.escape(letter)

    def _refuse(self, what: str) -> RejectedError:
        return RejectedError(
            f"expected a glob as rclone writes them, found {self.text!a}: {what}", field=self.field, hint="Correct it."
        )
