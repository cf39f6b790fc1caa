"""Packs and templates, behind the rights of the user who asks. The REST API, the pages and Rest.li call these alone.

A template for other groups of users does not exist for the user, and neither does a version of a pack that has no
template for the user. Who may manage sees each pack, since its versions are taken.
"""

from collections.abc import Callable
from dataclasses import dataclass

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.access import AccessRules, User, may_use
from gobblin_assets.service.flow_store import SpecNotFoundError
from gobblin_assets.service.job_template import JobTemplate
from gobblin_assets.service.open_writes import OpenWrites
from gobblin_assets.service.pack_catalog import PackCatalog, PublishedPack
from gobblin_assets.service.template_store import TemplatePack, TemplateUri, get_template, read_pack_file


@dataclass(frozen=True, slots=True)
class VisiblePack:
    """A version of a pack, and its templates that the user may use, by their paths."""

    published: PublishedPack
    templates: tuple[JobTemplate, ...]


class GuardedPacks:
    """All that users do with packs and templates. ``rules``: those of now."""

    def __init__(self, catalog: PackCatalog, rules: Callable[[], AccessRules], writes: OpenWrites) -> None:
        self._catalog = catalog
        self._rules = rules
        self._writes = writes

    def may_publish(self, user: User) -> bool:
        return self._rules().may_manage(user)

    def publish(self, user: User, content: bytes) -> tuple[VisiblePack, bool]:
        """Publish the pack that a zip file is. True: it is new; False: the same was published before.

        Raises:
            RejectedError: it is no pack; the file, the option in it and the fix are named.
            ConflictError: its version is published, and holds something else.

        """
        self._rules().check_manager(user)
        pack = read_pack_file(content)
        with self._writes.open():
            published, is_new = self._catalog.publish(pack, user.name)
        return VisiblePack(published, _list_usable(pack, user)), is_new

    def list_packs(self, user: User) -> list[VisiblePack]:
        """The newest version of each pack."""
        found = (self._find(user, pack) for pack in self._catalog.list_packs())
        return [each for each in found if each is not None]

    def list_versions(self, user: User, name: str) -> list[PublishedPack]:
        """The versions of a pack, the newest first. SpecNotFoundError: there is no such pack."""
        versions = [each for each in self._catalog.list_published(name) if self._has_version(user, name, each.version)]
        if not versions:
            raise self._no_pack(user, name)
        return versions

    def get_version(self, user: User, name: str, version: str) -> VisiblePack:
        """SpecNotFoundError: there is no such version."""
        known = self.list_versions(user, name)
        pack = self._catalog.find_pack(name, version)
        found = None if pack is None else self._find(user, pack)
        if found is None:
            versions = ", ".join(each.version for each in known[:20])
            raise SpecNotFoundError(
                f"the pack {name} has no version {version[:100]!a}", field="version", hint=f"Known: {versions}."
            )
        return found

    def list_templates(self, user: User) -> list[JobTemplate]:
        """Of the newest versions of all packs, in the order of their URIs."""
        found = (template for pack in self._catalog.list_packs() for template in _list_usable(pack, user))
        return sorted(found, key=lambda each: each.uri)

    def choose_template(self, user: User, uri: TemplateUri, field: str = "template_uris") -> JobTemplate:
        """RejectedError: there is none of this URI, or the user may not use it."""
        return get_template(self._catalog, uri, field, lambda groups: may_use(groups, user))

    def get_template(self, user: User, uri: TemplateUri) -> JobTemplate:
        """SpecNotFoundError: there is none of this URI, or the user may not use it."""
        try:
            return self.choose_template(user, uri, "uri")
        except RejectedError as error:
            raise SpecNotFoundError(error.message.removeprefix("uri: "), field="uri", hint=error.hint) from None

    def _has_version(self, user: User, name: str, version: str) -> bool:
        pack = self._catalog.find_pack(name, version)
        return pack is not None and self._is_visible(user, pack)

    def _is_visible(self, user: User, pack: TemplatePack) -> bool:
        return not pack.templates or bool(_list_usable(pack, user)) or self.may_publish(user)

    def _find(self, user: User, pack: TemplatePack) -> VisiblePack | None:
        published = {each.version: each for each in self._catalog.list_published(pack.name)}.get(pack.version)
        if published is None or not self._is_visible(user, pack):
            return None
        return VisiblePack(published, _list_usable(pack, user))

    def _no_pack(self, user: User, name: str) -> SpecNotFoundError:
        known = ", ".join(each.published.name for each in self.list_packs(user)[:20])
        return SpecNotFoundError(f"there is no pack {name[:100]!a}", field="pack", hint=f"Known: {known or 'none'}.")


def _list_usable(pack: TemplatePack, user: User) -> tuple[JobTemplate, ...]:
    return tuple(template for _path, template in sorted(pack.templates.items()) if may_use(template.groups, user))
