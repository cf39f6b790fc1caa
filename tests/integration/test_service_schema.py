"""The commands on the database, where the service is used and where it is not."""

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, text

from gobblin_assets.cli.database import db
from gobblin_assets.db import schema
from gobblin_assets.db.schema import SchemaRelation
from gobblin_assets.service.postgres.history import SERVICE_HISTORY


def test_the_schema_of_the_service_is_made_when_it_is_asked_for_and_then_kept_up(
    engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)

    def ask(*arguments: str) -> tuple[int, str]:
        answer = CliRunner().invoke(db, list(arguments))
        return answer.exit_code, answer.output

    assert ask("upgrade")[0] == 0
    assert schema.read_version(engine, SERVICE_HISTORY).relation is SchemaRelation.ABSENT
    code, said = ask("check")
    assert (code, "service" in said) == (0, False)

    assert ask("upgrade", "--service")[0] == 0
    assert schema.read_version(engine, SERVICE_HISTORY).relation is SchemaRelation.CURRENT
    code, said = ask("check")
    assert code == 0
    assert "the service's is current" in said
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE gobblin_service.flow DROP COLUMN owner"))
    code, said = ask("check")
    assert code == 1
    assert "owner" in said
