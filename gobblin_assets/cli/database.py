"""Commands on the Postgres of a home, and on the log's tables wherever they are: db."""

from pathlib import Path

import click

from gobblin_assets.cli.lazy_commands import LazyGroup, example
from gobblin_assets.cli.output import EXIT_FAILED, json_option, print_json, print_table, say
from gobblin_assets.db import backup as backups
from gobblin_assets.db import embedded, schema
from gobblin_assets.db.engine import open_for_upgrade
from gobblin_assets.errors import RejectedError
from gobblin_assets.service.postgres.history import SERVICE_HISTORY
from gobblin_assets.settings import DATABASE_URL_VARIABLE, Settings, read_settings


@click.group(cls=LazyGroup)
def db() -> None:
    """The database of the commit log."""


@db.command("start", epilog=example("db start"))
def start_database() -> None:
    """Start the embedded Postgres; every other command does so by itself."""
    server = embedded.start(_embedded_settings().home, say)
    say(f"The embedded Postgres answers on {server.host}:{server.port}.")


@db.command("stop", epilog=example("db stop"))
def stop_database() -> None:
    """Stop the embedded Postgres; open transactions are rolled back."""
    say("stopped" if embedded.stop(_embedded_settings().home, say) else "none was running")


@db.command("status", epilog=example("db status"))
@json_option
def show_database(as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """Show the state of the embedded Postgres; start nothing."""
    found = embedded.status(_embedded_settings().home)
    facts = {
        "state": found.state.value,
        "version": found.version,
        "port": None if found.server is None else found.server.port,
        "started_at": found.started_at,
        "data": str(found.data_directory),
        "log": str(found.log),
    }
    if as_json:
        print_json(facts)
        return
    # A port is a name, not an amount.
    print_table("embedded Postgres", ("", ""), [(k, None if v is None else str(v)) for k, v in facts.items()])


@db.command(epilog=example("db backup /backups/gobblin-2026-01-31"))
@click.argument("target", type=click.Path(path_type=Path))
def backup(target: Path) -> None:
    """Copy the embedded Postgres, as it is at one instant, into the new directory TARGET."""
    backups.backup(_embedded_settings().home, target, say)
    say(f"backed up to {target}")


@db.command(epilog=example("db restore /backups/gobblin-2026-01-31"))
@click.argument("source", type=click.Path(path_type=Path))
def restore(source: Path) -> None:
    """Restore the backup SOURCE as the embedded Postgres of an empty GOBBLIN_HOME."""
    backups.restore(_embedded_settings().home, source, say)
    say(f"restored from {source}")


@db.command(epilog=example("db upgrade"))
@click.option("--service", is_flag=True, help="Make the service's schema too, before it is used for the first time.")
def upgrade(service: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """Bring the schema to this package's version, and that of the service if it was used here."""
    engine = open_for_upgrade(read_settings(), say)
    try:
        status = schema.upgrade(engine, say)
        say(f"the schema is at version {status.current}")
        if schema.read_version(engine, SERVICE_HISTORY).relation is not schema.SchemaRelation.ABSENT or service:
            status = schema.upgrade(engine, say, SERVICE_HISTORY)
            say(f"the service's schema is at version {status.current}")
    finally:
        engine.dispose()


@db.command(epilog=example("db check"))
@json_option
def check(as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """Compare the database's schemas with this package's; exit code 1 if they differ."""
    engine = open_for_upgrade(read_settings(), say)
    try:
        status, service = schema.check(engine), schema.check(engine, SERVICE_HISTORY)
    finally:
        engine.dispose()
    if as_json:
        print_json(status)
    else:
        click.echo(f"{status.relation.value}: found {status.current or 'none'}, this package has {status.head}")
        _echo_differences(status)
        if service.relation is not schema.SchemaRelation.ABSENT:
            found = f"found {service.current or 'none'}, this package has {service.head}"
            click.echo(f"the service's is {service.relation.value}: {found}")
            _echo_differences(service)
    is_service_good = service.relation in (schema.SchemaRelation.ABSENT, schema.SchemaRelation.CURRENT)
    if status.relation is not schema.SchemaRelation.CURRENT or not is_service_good:
        click.get_current_context().exit(EXIT_FAILED)
    if status.differences or service.differences:
        click.get_current_context().exit(EXIT_FAILED)


def _echo_differences(status: schema.SchemaStatus) -> None:
    for difference in status.differences:
        click.echo(f"  {difference}")


def _embedded_settings() -> Settings:
    settings = read_settings()
    if settings.database_url is not None:
        raise RejectedError(
            "it names a server that is not ours to start, stop or back up",
            field=DATABASE_URL_VARIABLE,
            hint="Unset it to work with the embedded Postgres.",
        )
    return settings
