"""Filters of a tree's entries: includes and excludes, or rules in order, as rclone takes them.

The first rule that matches a file's path decides; without a match, the file is copied, unless includes were written:
then it is not. A glob that ends with a slash is for directories: excluded, it leaves out all that is below; included,
it chooses no file, and only lets listings into the directory. ``globs`` describes the globs.

Listings do not go into directories in which no file can be chosen. That never changes which files are chosen. (rclone's
own rules for directories overlook files where an include with a slash inside is not bound to the root.)

Source: https://rclone.org/filtering/ ("How filter rules are applied to files", "… to directories") and rclone's
``fs/filter/filter.go``.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import EntryKind, Tree, TreeEntry
from gobblin_assets.jobs.copy.globs import Glob, parse_glob

_EVERYTHING: Final = "/**"


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
    """Of one of the three: globs to include, globs to exclude, or ordered rules such as ``- *.tmp``, ``+ /data/**``.

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
    """Of a listing, what ``list_chosen`` gives."""
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
