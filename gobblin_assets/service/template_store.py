"""Packs of job templates: zip files whose versions never change, and the store that templates are found in.

``FS:///pack/x.template`` names a template of the store, never a file: without a pack it is one of the pack ``default``,
and ``FS:///pack@2/x.template`` is of this version, where others are of the version that the flow has pinned, or of the
newest.
"""

import difflib
import hashlib
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, NamedTuple, Protocol

from pydantic import Field, ValidationError

from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.service.job_template import TEMPLATE_BYTES_MAX, JobTemplate, parse_template
from gobblin_assets.spec.spec_errors import refuse
from gobblin_assets.spec.spec_model import SpecModel
from gobblin_assets.spec.yaml_files import read_yaml

DEFAULT_PACK: Final = "default"

PACK_BYTES_MAX: Final = 1 << 20
PACK_CONTENT_BYTES_MAX: Final = 8 << 20
TEMPLATES_MAX: Final = 500
_URI_LENGTH_MAX: Final = 1_000

_DESCRIPTION: Final = "pack.yaml"
_SUFFIX: Final = ".template"
_PACKS: Final = files("gobblin_assets.service") / "packs"

_WORD: Final = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"
_VERSION: Final = r"(?:0|[1-9][0-9]{0,8})(?:\.(?:0|[1-9][0-9]{0,8})){0,3}"
_URI: Final = re.compile(
    rf"FS:///(?:(?P<pack>{_WORD})(?:@(?P<version>{_VERSION}))?/)?(?P<path>(?:{_WORD}/)*{_WORD}\.template)"
)
_PATH: Final = re.compile(rf"(?:{_WORD}/){{0,5}}{_WORD}\.template")


class TemplateUri(NamedTuple):
    """The address of a template. ``version``: of its pack; None: the newest."""

    pack: str
    path: str
    version: str | None = None

    def __str__(self) -> str:
        pinned = "" if self.version is None else f"@{self.version}"
        return f"FS:///{self.pack}{pinned}/{self.path}"


class PackOptions(SpecModel):
    """A pack's description, ``pack.yaml``."""

    pack: Annotated[str, Field(pattern=rf"^{_WORD}$")]
    version: Annotated[str, Field(pattern=rf"^{_VERSION}$")]
    description: str = Field("", max_length=2_000)


@dataclass(frozen=True, slots=True)
class TemplatePack:
    """One version of a pack. ``digest``: of its files. ``files`` and ``templates``: by their paths in it."""

    name: str
    version: str
    description: str
    digest: str
    templates: Mapping[str, JobTemplate]
    files: Mapping[str, bytes] = field(repr=False)


class TemplateStore(Protocol):
    """All versions of all packs."""

    def list_packs(self) -> list[TemplatePack]:
        """The newest version of each, by name."""
        ...

    def find_pack(self, name: str, version: str | None = None) -> TemplatePack | None:
        """A version of a pack; without one, the newest."""
        ...


class TemplatesInMemory:
    """A store of packs in this process."""

    def __init__(self, packs: Iterable[TemplatePack] = ()) -> None:
        self._packs: dict[str, dict[str, TemplatePack]] = {}
        for pack in packs:
            self.publish(pack)

    def list_packs(self) -> list[TemplatePack]:
        return [self._packs[name][_newest(self._packs[name])] for name in sorted(self._packs)]

    def find_pack(self, name: str, version: str | None = None) -> TemplatePack | None:
        versions = self._packs.get(name)
        return None if not versions else versions.get(_newest(versions) if version is None else version)

    def publish(self, pack: TemplatePack) -> TemplatePack:
        """Keep a version for ever. The same again changes nothing; ConflictError for another content of a version."""
        versions = self._packs.setdefault(pack.name, {})
        known = versions.get(pack.version)
        if known is not None:
            require_same_pack(pack, known.digest)
            return known
        versions[pack.version] = pack
        return pack


def require_same_pack(pack: TemplatePack, digest: str) -> None:
    """ConflictError if the version was published with another content, which has this digest."""
    if pack.digest != digest:
        raise ConflictError(
            f"the version {pack.version} of the pack {pack.name} is published, and holds something else",
            hint="Count up the version in pack.yaml: a published one never changes.",
            pack=pack.name,
        )


def version_key(version: str) -> tuple[int, ...]:
    """The order of versions: by numbers, not as texts."""
    return tuple(map(int, version.split(".")))


def _newest(versions: Iterable[str]) -> str:
    return max(versions, key=version_key)


def find_template_uri(text: str) -> TemplateUri | None:
    """The address that the text is; None for another text than ``FS:///<pack>/<path>.template``."""
    found = _URI.fullmatch(text) if len(text) <= _URI_LENGTH_MAX and ".." not in text else None
    return None if found is None else TemplateUri(found["pack"] or DEFAULT_PACK, found["path"], found["version"])


def parse_template_uri(text: str, field: str = "template_uris") -> TemplateUri:
    """RejectedError for another text than ``FS:///<pack>/<path>.template``."""
    found = find_template_uri(text)
    if found is None:
        raise RejectedError(
            f"expected FS:///<pack>/<name>.template, found {text[:200]!a}",
            field=field,
            hint="Write FS:///jdbc-to-lake.template for a template of the pack default.",
        )
    return found


def get_template(
    store: TemplateStore,
    uri: TemplateUri,
    field: str = "template_uris",
    may_use: Callable[[frozenset[str]], bool] = lambda _groups: True,
) -> JobTemplate:
    """RejectedError with the nearest name if the store has no such template.

    ``may_use``: whether the user may use what is for these groups. Anything else does not exist for the user.
    """

    def list_usable(pack: TemplatePack) -> list[str]:
        return sorted(path for path, each in pack.templates.items() if may_use(each.groups))

    pack = store.find_pack(uri.pack, uri.version)
    if pack is None or (pack.templates and not list_usable(pack)):
        known = [each.name for each in store.list_packs() if list_usable(each)]
        versioned = "" if uri.version is None else f" of the version {uri.version}"
        raise RejectedError(f"there is no pack {uri.pack!r}{versioned}", field=field, hint=_offer(uri.pack, known))
    template = pack.templates.get(uri.path)
    if template is None or not may_use(template.groups):
        raise RejectedError(
            f"the pack {pack.name} has no template {uri.path!r}", field=field, hint=_offer(uri.path, list_usable(pack))
        )
    return template


def _offer(word: str, known: Sequence[str]) -> str:
    # All templates end alike, which says nothing of what was meant.
    by_stem = {name.removesuffix(_SUFFIX): name for name in known}
    close = difflib.get_close_matches(word.removesuffix(_SUFFIX), by_stem, n=1)
    return f"Did you mean {by_stem[close[0]]!r}?" if close else f"Known: {', '.join(known[:20]) or 'none'}."


def read_shipped_packs() -> list[TemplatePack]:
    """The packs that come with the service: directories, and their earlier versions as zip files."""
    return [
        read_pack(_list_files(each, "")) if each.is_dir() else read_pack_file(each.read_bytes())
        for each in sorted(_PACKS.iterdir(), key=lambda each: each.name)
        if each.is_dir() or each.name.endswith(".zip")
    ]


def _list_files(folder: Traversable, place: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for each in folder.iterdir():
        if each.is_dir():
            found |= _list_files(each, f"{place}{each.name}/")
        elif each.name == _DESCRIPTION or each.name.endswith(_SUFFIX):
            found[f"{place}{each.name}"] = each.read_bytes()
    return found


def read_pack_file(content: bytes) -> TemplatePack:
    """A pack from a zip file. RejectedError for what is no pack: too large, another kind of file, a path outside."""
    if len(content) > PACK_BYTES_MAX:
        raise _refuse(f"expected at most {PACK_BYTES_MAX >> 10} KiB", "Divide it into several packs.")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return read_pack(_unpack(archive))
    except (
        *(zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError, ValueError, OSError),
        *(zlib.error, lzma.LZMAError),
    ) as error:
        raise _refuse(f"is no zip file that can be read: {error}", "Make it anew, without a password.") from None


def _unpack(archive: zipfile.ZipFile) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    left_bytes = PACK_CONTENT_BYTES_MAX
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    if len(entries) > TEMPLATES_MAX + 1:
        raise _refuse(f"expected at most {TEMPLATES_MAX} templates", "Divide it into several packs.")
    for entry in entries:
        name = entry.filename
        if name != _DESCRIPTION and (not _PATH.fullmatch(name) or ".." in name):
            raise _refuse(f"expected {_DESCRIPTION} and *{_SUFFIX}, found {name[:200]!a}", "Take it out of the pack.")
        if name in found:
            raise _refuse(f"{name} is there twice", "Make it anew.")
        with archive.open(entry) as file:
            # Read no further than allowed, whatever the entry says of its size.
            found[name] = file.read(min(TEMPLATE_BYTES_MAX, left_bytes) + 1)
        left_bytes -= len(found[name])
        if left_bytes < 0 or len(found[name]) > TEMPLATE_BYTES_MAX:
            raise _refuse(f"{name} is too large", f"A template has at most {TEMPLATE_BYTES_MAX >> 10} KiB.")
    return found


def read_pack(content: Mapping[str, bytes]) -> TemplatePack:
    """A pack from its files by path. RejectedError names the file, the option in it, and the fix."""
    texts = {name: _decode(name, each) for name, each in content.items()}
    if _DESCRIPTION not in texts:
        raise _refuse(f"has no {_DESCRIPTION}", 'Add it, with `pack: NAME` and `version: "1"`.')
    options = _read_description(texts.pop(_DESCRIPTION))
    templates = {}
    for path, text in sorted(texts.items()):
        uri = TemplateUri(options.pack, path, options.version)
        templates[path] = parse_template(text, str(uri), str(uri._replace(version=None)))
    return TemplatePack(
        name=options.pack,
        version=options.version,
        description=options.description,
        digest=_digest(content),
        templates=MappingProxyType(templates),
        files=MappingProxyType(dict(content)),
    )


def _decode(name: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise _refuse(f"{name} is no text in UTF-8", "Save it as UTF-8.") from None


def _read_description(text: str) -> PackOptions:
    try:
        return PackOptions.model_validate(read_yaml(text, Path(_DESCRIPTION)))
    except ValidationError as error:
        found = refuse(error, PackOptions)
    except RejectedError as error:
        found = error
    said = found.message.removeprefix(f"{found.field}: ")
    raise RejectedError(said, field=f"{_DESCRIPTION}: {found.field}", hint=found.hint)


def _digest(content: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, each in sorted(content.items()):
        digest.update(f"{len(name)}:{name}{len(each)}:".encode() + each)
    return digest.hexdigest()


def _refuse(said: str, hint: str) -> RejectedError:
    return RejectedError(said, field="pack", hint=hint)
