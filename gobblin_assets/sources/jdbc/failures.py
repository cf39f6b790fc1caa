"""The families of errors of drivers and Spark, by their words: each error arrives as the text of one Java error."""

import re
from collections.abc import Collection, Sequence
from typing import Final

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.sources.jdbc.catalog import Selected
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.postgres_tables import VALUE_MARK
from gobblin_assets.spark.errors import family_of_spark

POSITIONS_HINT: Final = (
    "set watermark.start to 1582-10-15. Or, where only infinite values are in the way, write where: isfinite(...) "
    "with the column of positions."
)

POLICY_HINT: Final = (
    "Run ALTER ROLE … BYPASSRLS. If the user is to have some of the rows only, read a view of the table's owner that "
    "has them."
)

_CAUSE: Final = re.compile(r"^(?:Caused by: |: )?[\w.$]+(?:Exception|Error): .*$", re.MULTILINE)
_MESSAGE_CHARACTERS_MAX: Final = 600

_DRIVER_HINT: Final = (
    "Name the driver's class, and give its jar by the job's source.packages or source.jars; a Spark server has the "
    "jars that it was started with: gobblin-assets spark start --capability NAME, or --packages."
)

# Only these errors are the source's: a file system may also report a full disk or a refused connection.
_OF_JDBC: Final = re.compile(r"SQL\w*Exception|ClassNotFoundException|No suitable driver|UNRECOGNIZED_SQL_TYPE")
_DRIVER_MISSING: Final = re.compile(r"ClassNotFoundException|No suitable driver")
_LOGIN: Final = re.compile(
    r"(?i)authentication failed|access denied for user|login failed|invalid (username|authorization)"
    r"|ORA-01017|password authentication|wrong user name|no pg_hba|password-based authentication"
)
_DATABASE: Final = re.compile(
    r"(?i)database .* (not found|does not exist)|unknown database|cannot open database|ORA-12514"
    r"|SQLITE_CANTOPEN|SQLITE_NOTADB|not a valid DuckDB database"
)
_UNREACHABLE: Final = re.compile(
    r"(?i)connection (to .* )?(refused|attempt failed|timed out|reset)|unknown ?host|communications link failure"
    r"|no route to host|i/o error occurred|tcp/ip connection to the host|broken pipe|connection has been closed"
    r"|terminating connection|the database system is"
)
_TIMEOUT: Final = re.compile(r"(?i)statement timeout|query timeout|SQLTimeoutException|canceled or timed out")
_SNAPSHOT: Final = re.compile(
    r"(?i)invalid snapshot identifier|snapshot .* does not exist|import the requested snapshot"
)
_POLICY: Final = re.compile(r"(?i)row-level security")
_LOCKED: Final = re.compile(r"(?i)lock timeout|deadlock detected|could not serialize|lock wait timeout|ORA-00060")
_PERMISSION: Final = re.compile(
    r"(?i)permission denied|not have (the )?\w+ permission|insufficient privileges|ORA-01031"
)
_REFUSED: Final = re.compile(
    r"SQLSyntaxErrorException|SQLDataException|invalid input syntax|[Ss]yntax error|does not exist|out of range"
    r"|UNRECOGNIZED_SQL_TYPE|NUMERIC_VALUE_OUT_OF_RANGE|Bad value for type|division by zero|SQLFeatureNotSupported"
    r"|SQLITE_ERROR|(?:Binder|Parser|Catalog|Conversion|Invalid Input|Out of Range) Error:"
)


def judge_driver(error: Exception, connection: JdbcConnection) -> GobblinError:
    """The family of what Spark or a driver raised while asking or reading; its message holds no secret."""
    if isinstance(error, GobblinError):
        return error
    found = _find_source_failure(error, connection)
    if found is not None:
        return found
    text = str(error)
    if connection.scrub(text) == text:
        return family_of_spark(error, action="read the source, or write what it read")
    return RetryableError(f"Spark failed: {summarize(connection.scrub(text))}")


def _find_source_failure(error: Exception, connection: JdbcConnection) -> GobblinError | None:
    text = connection.scrub(str(error))
    return judge_words(text, connection) if _OF_JDBC.search(text) else None


def judge_words(text: str, connection: JdbcConnection) -> GobblinError:
    """The family of what a database or its driver said; ``text`` holds no secret."""
    said = summarize(text)
    where = f"connections[{connection.name}]"
    rejections = (
        (_DRIVER_MISSING, f"{where}.driver", _DRIVER_HINT),
        (_LOGIN, f"{where}.password", "Give the right user and password."),
        (_DATABASE, f"{where}.url", "Correct the database's name in the URL, or make the database."),
        (_POLICY, f"{where}.user", POLICY_HINT),
        (_PERMISSION, f"{where}.user", "Grant SELECT to this user."),
    )
    for pattern, field, hint in rejections:
        if pattern.search(text):
            return RejectedError(said, field=field, hint=hint)
    if _SNAPSHOT.search(text):
        return RetryableError(f"the snapshot that all readers share is gone: {said}", hint="The run is planned anew.")
    if _LOCKED.search(text):
        return RetryableError(f"another session keeps the table locked: {said}", passes=True)
    if _TIMEOUT.search(text):
        return RetryableError(
            f"a read took too long: {said}",
            passes=True,
            hint="Raise source.read_timeout_s, or lower split.work_unit_rows so that each read is smaller.",
        )
    if _UNREACHABLE.search(text):
        return RetryableError(
            f"the source can't be reached: {said}", passes=True, hint=f"Check {where}.url, and that it runs."
        )
    if _REFUSED.search(text):
        return RejectedError(
            f"the source refused a query: {said}",
            field="datasets",
            hint="Correct the dataset's where, casts, partition key or types that the message names.",
        )
    return RetryableError(f"the source failed: {said}")


def find_refused_value(
    error: Exception, columns: Sequence[Selected], table: str, urn: str, *, positions: Collection[str] = ()
) -> RejectedError | None:
    """The error for a refused value that a mark names, with its fix; None: no mark. ``positions`` are not cast."""
    found = VALUE_MARK.search(str(error))
    if found is None or int(found[1]) >= len(columns):
        return None
    column = columns[int(found[1])]
    field, hint = "casts", f"Write casts: {{{column.name!r}: {column.cast!r}}}, or leave such rows out by where."
    if column.name in positions:
        # A cast would turn the positions into texts.
        field = "where"
        hint = f"Leave such rows out: {POSITIONS_HINT}"
    return RejectedError(
        f"{table}.{column.name} ({column.type_text}) holds {found[2]}, which Spark can't hold unchanged",
        field=f"datasets[{urn}].{field}",
        hint=hint,
        table=table,
        column=column.name,
        value=found[2],
    )


def summarize(text: str) -> str:
    """The last cause in a Java stack trace, or the first line."""
    causes = _CAUSE.findall(text)
    line = causes[-1] if causes else next((line for line in text.splitlines() if line.strip()), "no message")
    return line.removeprefix("Caused by: ").removeprefix(": ")[:_MESSAGE_CHARACTERS_MAX]
