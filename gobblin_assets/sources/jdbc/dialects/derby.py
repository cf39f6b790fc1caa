"""Apache Derby, whose driver comes with Spark. Its databases live inside the JVM that reads them."""

from typing import Final

from gobblin_assets.sources.jdbc.dialect import JdbcDatabase
from gobblin_assets.sources.jdbc.dialects.ansi import KnownDialect
from gobblin_assets.sources.jdbc.names import TableName


class DerbyDialect(KnownDialect):
    """Derby's SQL. Texts are not positions: Derby treats texts as equal that differ only in spaces at the end."""

    title = "Derby"
    # The wall clock of the JVM, which is in UTC.
    clock_query = 'SELECT CAST(CURRENT_TIMESTAMP AS VARCHAR(64)) AS "clock" FROM SYSIBM.SYSDUMMY1'
    schema_query = 'SELECT CURRENT SCHEMA AS "table_schema" FROM SYSIBM.SYSDUMMY1'
    tables_query = (
        'SELECT s.SCHEMANAME AS "table_schema", t.TABLENAME AS "table_name" FROM SYS.SYSTABLES t'
        " JOIN SYS.SYSSCHEMAS s ON s.SCHEMAID = t.SCHEMAID WHERE t.TABLETYPE IN ('T', 'V')"
    )

    def equals_key(self, column: str, text: str, type_text: str) -> str | None:
        value = self.text_literal(text)
        if type_text.startswith(("VARCHAR", "LONG VARCHAR")):
            return f"{column} = {value} AND LENGTH({column}) = LENGTH({value})"
        return f"{column} = {value}" if type_text.startswith("CHAR") else f"{column} = CAST({value} AS {type_text})"

    def columns_query(self, name: TableName) -> str:
        # COLUMNDATATYPE is a Java object whose text form ends in NOT NULL when the column refuses NULLs.
        text = "CAST(c.COLUMNDATATYPE AS VARCHAR(200))"
        return (
            f'SELECT c.COLUMNNAME AS "column_name", c.COLUMNNUMBER AS "position", {text} AS "type_text",'
            # Spark fills a CHAR up with spaces.
            f" CAST(CASE WHEN {text} LIKE '% NOT NULL' THEN 'NO' ELSE 'YES' END AS VARCHAR(3)) AS \"nullable\""
            " FROM SYS.SYSCOLUMNS c JOIN SYS.SYSTABLES t ON t.TABLEID = c.REFERENCEID"
            " JOIN SYS.SYSSCHEMAS s ON s.SCHEMAID = t.SCHEMAID"
            f" WHERE s.SCHEMANAME = {self.text_literal(name.schema or '')}"
            f" AND t.TABLENAME = {self.text_literal(name.table)}"
        )


DERBY: Final = JdbcDatabase(dialect=DerbyDialect, driver_class="org.apache.derby.iapi.jdbc.AutoloadedDriver")
