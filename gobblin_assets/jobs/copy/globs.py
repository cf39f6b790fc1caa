r"""Globs as rclone writes them, over paths relative to a tree's root, and the filters of a tree that are made of them.
``*`` is any text without a slash, ``**`` any text, ``?`` one character but no slash; ``[a-z]`` is one of some
characters, ``[!a-z]`` and ``[^a-z]`` one of all others but no slash; ``{a,b}`` is one of several globs, and may be
nested. A backslash takes the next character as it is, but ``\d``, ``\s``, ``\w`` and their capitals are ASCII's
classes, as ``[[:alpha:]]`` and its like are. A leading slash binds a glob to the root; any other glob matches from the
beginning of a name to the end of the path. Letters keep their case.

Source: https://rclone.org/filtering/ ("Patterns for matching path/file names") and rclone's ``fs/filter/glob.go``.
rclone itself takes ``!`` in a class as a character, although its document says that it negates; here it negates. A
class never matches a slash here. Regular expressions between double braces are refused.

Filters are includes and excludes, or rules in order. The first rule that matches a file's path decides; without a
match, the file is copied, unless includes were written: then it is not. A glob that ends with a slash is for
directories: excluded, it leaves out all that is below; included, it chooses no file, and only lets listings into the
directory. Listings do not go into directories in which no file can be chosen. That never changes which files are
chosen. (rclone's own rules for directories overlook files where an include with a slash inside is not bound to the
root.)

Source: the same ("How filter rules are applied to files", "… to directories") and rclone's ``fs/filter/filter.go``.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import EntryKind, Tree, TreeEntry

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

_EVERYTHING: Final = "/**"


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


@dataclass(frozen=True, slots=True)
class FilterRule:
    """One rule, in its place among the others."""

    includes: bool
    glob: Glob

    def opens(self, directory: str) -> bool:
        """Whether an including rule sends listings into the directory."""
        if self.glob.text.endswith("/") and not self.glob.is_anchored:
            return self.glob.matches(f"{directory}/")
        return self.glob.may_match_below(directory)


@dataclass(frozen=True, slots=True)
class Filters:
    """The rules of one dataset; without any, everything is copied."""

    rules: tuple[FilterRule, ...] = ()

    @property
    def has_includes(self) -> bool:
        return any(rule.includes for rule in self.rules)

    def chooses(self, path: str) -> bool:
        """Whether the file, link or special file of this path is copied."""
        for rule in self.rules:
            if rule.glob.matches(path):
                return rule.includes
        return True

    def descends(self, directory: str) -> bool:
        """Whether something below the directory may be chosen."""
        for rule in self.rules:
            if rule.includes and rule.opens(directory):
                return True
            if not rule.includes and rule.glob.matches_all_below(directory):
                return False
        return True


def parse_filters(*, include: Sequence[str] = (), exclude: Sequence[str] = (), filters: Sequence[str] = ()) -> Filters:
    """The filters of globs to include, globs to exclude, or ordered rules such as ``- *.tmp``: of one kind.
    RejectedError names the rule, such as ``exclude[0]``.
    """
    written = {"include": include, "exclude": exclude, "filters": filters}
    used = [name for name, rules in written.items() if rules]
    if len(used) > 1:
        raise RejectedError(
            f"expected one of include, exclude and filters; found {' and '.join(used)}",
            field=used[1],
            hint="Write all of them under filters, as `+ <glob>` and `- <glob>`: the first that matches decides.",
        )
    rules = [_parse_rule(text, f"include[{number}]", includes=True) for number, text in enumerate(include)]
    if include:
        rules.append(_parse_rule(_EVERYTHING, "include", includes=False))
    rules += [_parse_rule(text, f"exclude[{number}]", includes=False) for number, text in enumerate(exclude)]
    rules += [_parse_signed(text, f"filters[{number}]") for number, text in enumerate(filters)]
    return Filters(tuple(rules))


def list_chosen(tree: Tree, root: str, filters: Filters, *, bare_directories: bool) -> Iterator[TreeEntry]:
    """The chosen entries of a tree, and the directories on the way to them, in the order of listings.

    ``bare_directories``: directories without a chosen entry below are given too, if something below them may be chosen.
    Of a destination, they must be: else a directory that is there would be taken for a new one. Of a source with
    includes, they would come as empty directories that nobody asked for.
    """
    entries = list_within(tree, root, filters)
    # Without rules all is chosen: to ask for each entry takes a twentieth of the time of a plan.
    if bare_directories and not filters.rules:
        return entries
    return choose_entries(entries, filters, bare_directories=bare_directories)


def list_within(tree: Tree, root: str, filters: Filters) -> Iterator[TreeEntry]:
    """All entries of a tree, but those below directories in which nothing can be chosen."""
    return tree.list_tree(root, filters.descends if filters.rules else None)


def choose_entries(entries: Iterable[TreeEntry], filters: Filters, *, bare_directories: bool) -> Iterator[TreeEntry]:
    """The entries of a listing that ``list_chosen`` gives."""
    bare: list[TreeEntry] = []
    for entry in entries:
        while bare and not entry.path.startswith(f"{bare[-1].path}/"):
            bare.pop()
        if entry.kind is not EntryKind.DIRECTORY:
            if filters.chooses(entry.path):
                yield from bare
                bare.clear()
                yield entry
        elif filters.descends(entry.path):
            if bare_directories:
                yield entry
            else:
                bare.append(entry)


def _parse_signed(text: str, field: str) -> FilterRule:
    sign, space, glob = text[:1], text[1:2], text[2:]
    if sign not in ("+", "-") or space != " ":
        raise RejectedError(
            f"expected `+ <glob>` or `- <glob>`, found {text!a}",
            field=field,
            hint="Begin with the sign and one space: + includes, - excludes.",
        )
    return _parse_rule(glob, field, includes=sign == "+")


def _parse_rule(text: str, field: str, *, includes: bool) -> FilterRule:
    excludes_directory = not includes and text.endswith("/")
    return FilterRule(includes, parse_glob(f"{text}**" if excludes_directory else text, field=field))
