"""What every dialect of the JDBC source keeps, ours and those of packages."""

import datetime as dt

from gobblin_assets.model.interval import Interval
from gobblin_assets.model.watermark import WatermarkType
from gobblin_assets.sources.jdbc.dialect import SparkDialect
from gobblin_assets.sources.jdbc.positions import Axis, write_interval

MOMENT = dt.datetime(2020, 3, 29, 2, 30, 0, 1)  # noqa: DTZ001  a wall clock's
INSTANT = MOMENT.replace(tzinfo=dt.UTC)


def require_closed_quotes(dialect: SparkDialect) -> None:
    """No name and no text of a job ends the quotes around it."""
    for hostile in ('a"; DROP TABLE t; --', "a`; DROP TABLE t; --", "a'; DROP TABLE t; --"):
        mark = dialect.quote("a")[0]
        assert dialect.quote(hostile)[1:-1].replace(mark * 2, "").count(mark) == 0
        literal = dialect.literal(WatermarkType.STRING, hostile)
        assert literal.replace("''", "").count("'") == 2


def require_fractions(dialect: SparkDialect, kind: WatermarkType) -> None:
    """A condition has all six digits of a time: else it would leave rows out, or read them twice."""
    axis = Axis("seen", kind)
    moment = INSTANT if kind is WatermarkType.TIMESTAMP else MOMENT
    low, high = axis.lift(moment), axis.lift(moment).successor()
    written = write_interval(dialect, axis, (dialect.quote("w0"),), Interval(low, high))
    assert "02:30:00.000001" in written
    assert "02:30:00.000002" in written
