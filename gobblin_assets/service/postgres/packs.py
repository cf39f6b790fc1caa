"""``PackStore`` in Postgres: each version of a pack as a zip file, which is never changed."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, Row, text

from gobblin_assets.db.notices import Channel, notify
from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import RejectedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.service.pack_catalog import VERSIONS_MAX, PublishedPack
from gobblin_assets.service.pack_files import zip_pack
from gobblin_assets.service.postgres.flows import CHANGE_NUMBER, NEXT_CHANGE
from gobblin_assets.service.template_store import TemplatePack, require_same_pack

T = TypeVar("T")

PACK_CATALOG: Final = "packs"

_COLUMNS: Final = "pack, version, description, digest, published_by, published_at"

_LIST = text(f"SELECT {_COLUMNS} FROM gobblin_service.template_pack")

_FIND = text(f"""
    SELECT {_COLUMNS} FROM gobblin_service.template_pack WHERE pack = :pack AND version = :version
""")

_CONTENT = text("SELECT content FROM gobblin_service.template_pack WHERE pack = :pack AND version = :version")

_COUNT = text("SELECT count(*) FROM gobblin_service.template_pack WHERE pack = :pack")

# Of two that publish one version at once, the second waits here for the first.
_INSERT = text("""
    INSERT INTO gobblin_service.template_pack (pack, version, description, digest, content, published_by)
    VALUES (:pack, :version, :description, :digest, :content, :published_by)
        ON CONFLICT DO NOTHING
""")


class PostgresPackStore:
    """``PackStore`` over ``template_pack``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def find_change(self) -> object:
        return self._do("look for packs", lambda c: c.execute(CHANGE_NUMBER, {"catalog": PACK_CATALOG}).scalar() or 0)

    def list_published(self) -> Sequence[PublishedPack]:
        return [_published_of(row) for row in self._do("list packs", lambda c: c.execute(_LIST).all())]

    def find_content(self, name: str, version: str) -> bytes | None:
        arguments = {"pack": name, "version": version}
        found = self._do("read a pack", lambda c: c.execute(_CONTENT, arguments).scalar())
        return None if found is None else bytes(found)

    def publish(self, pack: TemplatePack, published_by: str) -> tuple[PublishedPack, bool]:
        made: list[bool] = []
        version = {"pack": pack.name, "version": pack.version}
        arguments = {
            **version,
            "description": pack.description,
            "digest": pack.digest,
            "content": zip_pack(pack.files),
            "published_by": published_by,
        }

        def body(connection: Connection) -> PublishedPack:
            if connection.execute(_INSERT, arguments).rowcount:
                _require_room(connection, pack.name)
                connection.execute(NEXT_CHANGE, {"catalog": PACK_CATALOG})
                notify(connection, Channel.CATALOGS, PACK_CATALOG)
                # A repetition finds its own work done, and says so.
                made.append(True)
            found = _published_of(connection.execute(_FIND, version).one())
            require_same_pack(pack, found.digest)
            return found

        return self._do("publish a pack", body, Failpoint.PACK_STORED), bool(made)

    def _do(self, name: str, body: Callable[[Connection], T], committed: Failpoint | None = None) -> T:
        return transact(self._engine, name, body, committed=committed)


def _require_room(connection: Connection, name: str) -> None:
    if connection.execute(_COUNT, {"pack": name}).scalar_one() > VERSIONS_MAX:
        raise RejectedError(
            f"the pack {name} has {VERSIONS_MAX:,} versions, and may not have more",
            field="pack.yaml: pack",
            hint="Publish it under another name.",
        )


def _published_of(row: Row[Any]) -> PublishedPack:
    return PublishedPack(row.pack, row.version, row.description, row.digest, row.published_by, row.published_at)
