"""Functions about dates, times and timestamps. Patterns are Java's (`java_time.py`)."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from sqlglot import exp

from millstream.errors import InvalidStatement

from ..types import DATE, STRING, TIME, TIMESTAMP, SqlType
from .casts.cast_trees import TIMESTAMP_OF_MS
from .function import BoundCall, Function, Render, scalar, variant
from .java.java_fields import DATE_FIELDS, Moment, day_of, epoch_ms_of, moment_of, nanos_of
from .java.java_time import compile_pattern
from .java.java_zones import Unparsable, offset_seconds, zone_of
from .java.simple_date import parse_lenient_date
from .java.strftime import strftime_format
from .template import fill
from .udf import Udf, by_row

time_function = partial(scalar, category="DATE / TIME")

# ------------------------------------------------------------------ formatting and parsing


@by_row
def format_timestamp(ms: int, pattern: str, zone: str = "GMT") -> str:
    return compile_pattern(pattern).format(moment_of(ms, zone))


@by_row
def format_epoch_ms(ms: int, pattern: str, zone: str = "UTC") -> str:
    return compile_pattern(pattern).format(moment_of(ms, zone))


@by_row
def format_date(day: int, pattern: str) -> str:
    return compile_pattern(pattern).format(Moment(day, None))


@by_row
def format_time(ms: int, pattern: str) -> str:
    return compile_pattern(pattern).format(Moment(None, ms * 1_000_000))


@by_row
def parse_timestamp(text: str, pattern: str, zone: str = "GMT") -> int:
    understood = compile_pattern(pattern)
    if zone == "GMT" and (epoch_ms := understood.parse_plain(text)) is not None:
        return epoch_ms
    return epoch_ms_of(understood.parse(text), zone_of(zone))


@by_row
def parse_date(text: str, pattern: str) -> int:
    return parse_lenient_date(pattern, text)


@by_row
def parse_days(text: str, pattern: str) -> int:
    day = day_of(compile_pattern(pattern).parse(text).fields)
    if day is None:
        raise Unparsable("there is no whole date in the text")
    return day


@by_row
def parse_time(text: str, pattern: str) -> int:
    fields = compile_pattern(pattern).parse(text).fields
    nanos = nanos_of(fields)
    if nanos is None or not DATE_FIELDS.isdisjoint(fields):
        raise Unparsable("the text is no time of day")
    return nanos // 1_000_000


@by_row
def convert_zone(ms: int, source: str, target: str) -> int:
    return ms + (offset_seconds(zone_of(target), ms) - offset_seconds(zone_of(source), ms)) * 1000


def _by_strftime(type_: SqlType) -> Render:
    """A constant pattern that DuckDB's strftime knows is left to DuckDB, which is faster."""

    def render(_call: BoundCall, arguments: list[exp.Expression]) -> exp.Expression | None:
        value, pattern = arguments
        format_ = _strftime_format(pattern, type_)
        if format_ is None:
            return None
        if type_ != TIME:
            return _formatted(value, format_)
        moment = "CAST('1970-01-01' AS DATE) + :value"
        return fill(f"strftime({moment}, :format)", {"value": value, "format": exp.Literal.string(format_)})

    return render


def _in_zone_by_strftime(_call: BoundCall, arguments: list[exp.Expression]) -> exp.Expression | None:
    """As above; patterns that say the zone are none that strftime knows."""
    moment, pattern, zone = arguments
    format_ = _strftime_format(pattern, TIMESTAMP)
    if format_ is None:
        return None
    types = (TIMESTAMP, STRING, STRING)
    local = Udf(convert_zone, types, TIMESTAMP).call([moment, exp.Literal.string("UTC"), zone])
    filling = {
        "moment": moment,
        "fast": fill("strftime(:value, :format)", {"value": local, "format": exp.Literal.string(format_)}),
        "exact": Udf(format_timestamp, types, STRING).call(arguments),  # see `_formatted`; a day is left for the zone
    }
    return fill(
        "CASE WHEN :moment < DATE '0001-01-02' OR :moment > DATE '9999-12-30' THEN :exact ELSE :fast END", filling
    )


def _strftime_format(pattern: exp.Expression, type_: SqlType) -> str | None:
    return strftime_format(pattern.this, type_) if isinstance(pattern, exp.Literal) and pattern.is_string else None


_YEAR: Final = "date_part('year', :value)"
_NEAR: Final = f":value - to_days(CAST(146097 * floor(({_YEAR} - 2000) / 400.0) AS INTEGER))"
_OF_ERA: Final = f"CASE WHEN {_YEAR} > 0 THEN {_YEAR} ELSE 1 - {_YEAR} END"
_YEAR_TEXT: Final = f"CASE WHEN {_OF_ERA} > 9999 THEN printf('+%d', {_OF_ERA}) ELSE printf('%04d', {_OF_ERA}) END"
_FAR: Final = f"replace(strftime({_NEAR}, :far), chr(1), {_YEAR_TEXT})"


def _formatted(value: exp.Expression, format_: str) -> exp.Expression:
    """Before year 1 Java counts the years of the era, and puts a sign before a fifth digit; strftime does neither. So
    the rest is said of a year whose calendar is the same, and stays SQL: a function in Python costs a query an instance
    of DuckDB."""
    far = "".join("\x01" if part == "%Y" else part for part in re.findall("%.|[^%]+", format_))
    text = f"CASE WHEN {_YEAR} < 1 OR {_YEAR} > 9999 THEN {_FAR} ELSE strftime(:value, :format) END"
    filling = {"value": value, "format": exp.Literal.string(format_), "far": exp.Literal.string(far)}
    return fill(text if far != format_ else "strftime(:value, :format)", filling)


# ------------------------------------------------------------------ adding intervals

_UNITS_MS = {
    "MILLISECONDS": 1, "SECONDS": 1000, "MINUTES": 60_000, "HOURS": 3_600_000, "DAYS": 86_400_000, "WEEKS": 604_800_000,
}  # fmt: skip
_DAYS = "(:moment - CAST('1970-01-01' AS DATE))"
_ADDED: dict[SqlType, str] = {
    TIMESTAMP: ":moment + to_microseconds(CAST(:interval AS BIGINT) * {us})",
    TIME: ":moment + to_microseconds(CAST(:interval AS BIGINT) * {us})",
    # A part of a day is dropped, towards 1970, as in Java.
    DATE: "CAST('1970-01-01' AS DATE) + "
    f"CAST(({_DAYS} * 86400000 + CAST(:interval AS BIGINT) * {{ms}}) // 86400000 AS INTEGER)",
}


def _adds(type_: SqlType, sign: int) -> Render:
    def render(call: BoundCall, arguments: list[exp.Expression]) -> exp.Expression:
        unit, interval, moment = arguments
        ms = _UNITS_MS.get(unit.name.upper() if unit.name.upper().endswith("S") else unit.name.upper() + "S")
        if ms is None:
            raise InvalidStatement(
                f"{call.function.name} has no unit {unit.name}",
                hint=f"The units are {', '.join(_UNITS_MS)}.",
            )
        text = _ADDED[type_].format(us=sign * ms * 1000, ms=sign * ms)
        return fill(text, {"interval": interval, "moment": moment})

    return render


def _adding(name: str, type_: SqlType, sign: int, example: dict[str, str]) -> Function:
    does = "Add an interval to" if sign > 0 else "Take an interval from"
    return time_function(
        name,
        signatures=[
            variant(
                f"(unit INTERVALUNIT, interval INTEGER, moment {type_}) -> {type_}",
                render=_adds(type_, sign),
            )
        ],
        doc=f"{does} a {type_}. Units are MILLISECONDS, SECONDS, MINUTES, HOURS, DAYS and WEEKS.",
        examples={**example, f"{name.upper()}(DAYS, 1, CAST(NULL AS {type_}))": "NULL"},
    )


# ------------------------------------------------------------------ the entries

_FORMATS = "The pattern is one of Java's DateTimeFormatter; literal text in it is in single quotes, doubled inside SQL."
_NOW_MS = "epoch_ms(now())"

FUNCTIONS: tuple[Function, ...] = (
    time_function(
        "convert_tz",
        signature="(moment TIMESTAMP, from_zone STRING, to_zone STRING) -> TIMESTAMP",
        doc="What the clocks of `to_zone` show when those of `from_zone` show `moment`.",
        python=convert_zone,
        examples={
            "CONVERT_TZ('2020-05-11T22:00:00', '+0200', '+0500')": "'2020-05-12T01:00:00'",
            "CONVERT_TZ('2020-05-11T22:00:00', 'PDT', 'Z')": "'2020-05-12T05:00:00'",
            "CONVERT_TZ(NULL, 'UTC', 'Europe/London')": "NULL",
        },
    ),
    _adding("dateadd", DATE, 1, {"DATEADD(DAYS, 5, '2020-01-30')": "'2020-02-04'"}),
    _adding("datesub", DATE, -1, {"DATESUB(DAYS, 1, '2020-03-01')": "'2020-02-29'"}),
    time_function(
        "datetostring",
        signature="(days INTEGER, pattern STRING) -> STRING",
        doc=f"Days since 1970 as text. {_FORMATS}",
        python=format_date,
        examples={"DATETOSTRING(18993, 'dd/MM/yyyy')": "'01/01/2022'", "DATETOSTRING(NULL, 'yyyy')": "NULL"},
        deprecated="FORMAT_DATE",
    ),
    time_function(
        "format_date",
        signatures=[variant("(date DATE, pattern STRING) -> STRING", render=_by_strftime(DATE), python=format_date)],
        doc=f"A DATE as text. {_FORMATS}",
        examples={
            "FORMAT_DATE('2018-05-11', 'dd-MMM-yyyy')": "'11-May-2018'",
            "FORMAT_DATE('2018-05-11', 'HH')": "NULL",
            "FORMAT_DATE('2018-05-11', '')": "''",
            "FORMAT_DATE(NULL, 'yyyy')": "NULL",
        },
    ),
    time_function(
        "format_time",
        signatures=[
            variant(
                "(time TIME, pattern STRING) -> STRING",
                render=_by_strftime(TIME),
                python=format_time,
            )
        ],
        doc=f"A TIME as text. {_FORMATS}",
        examples={"FORMAT_TIME('00:01:05', 'HH_mm_ss_SSS')": "'00_01_05_000'", "FORMAT_TIME(NULL, 'HH')": "NULL"},
    ),
    time_function(
        "format_timestamp",
        signatures=[
            variant(
                "(moment TIMESTAMP, pattern STRING) -> STRING",
                render=_by_strftime(TIMESTAMP),
                python=format_timestamp,
            ),
            variant(
                "(moment TIMESTAMP, pattern STRING, zone STRING) -> STRING",
                render=_in_zone_by_strftime,
                python=format_timestamp,
            ),
        ],
        doc=f"A TIMESTAMP as text, as it is called in `zone` (UTC). {_FORMATS}",
        examples={
            "FORMAT_TIMESTAMP('2018-05-11T21:58:33', 'yyyy-MM-dd HH:mm:ss.SSS')": "'2018-05-11 21:58:33.000'",
            "FORMAT_TIMESTAMP('2018-05-11T21:58:33', 'HH:mm zzz', 'Europe/London')": "'22:58 BST'",
            "FORMAT_TIMESTAMP(NULL, 'yyyy')": "NULL",
        },
    ),
    time_function(
        "from_days",
        signature="(days INTEGER) -> DATE",
        doc="The DATE this number of days after 1970-01-01.",
        sql="CAST('1970-01-03' AS DATE) + (:days - 2)",  # the two least numbers overflow: they are no days
        examples={"FROM_DAYS(18993)": "'2022-01-01'", "FROM_DAYS(NULL)": "NULL"},
    ),
    time_function(
        "from_unixtime",
        signature="(milliseconds BIGINT) -> TIMESTAMP",
        doc="The TIMESTAMP this number of milliseconds after 1970-01-01T00:00:00 UTC.",
        sql=TIMESTAMP_OF_MS.format(":milliseconds"),
        examples={"FROM_UNIXTIME(1589234313000)": "'2020-05-11T21:58:33'", "FROM_UNIXTIME(NULL)": "NULL"},
    ),
    time_function(
        "parse_date",
        signature="(text STRING, pattern STRING) -> DATE",
        doc="The DATE that a text says. The pattern is one of Java's SimpleDateFormat.",
        python=parse_date,
        examples={
            "PARSE_DATE('01-JAN-2022', 'dd-MMM-yyyy')": "'2022-01-01'",
            "PARSE_DATE('abc', 'yyyy')": "NULL",
            "PARSE_DATE(NULL, 'yyyy')": "NULL",
        },
    ),
    time_function(
        "parse_time",
        signature="(text STRING, pattern STRING) -> TIME",
        doc=f"The TIME in a text. {_FORMATS}",
        python=parse_time,
        examples={"PARSE_TIME('01:00:05 PM', 'hh:mm:ss a')": "'13:00:05'", "PARSE_TIME(NULL, 'HH')": "NULL"},
    ),
    time_function(
        "parse_timestamp",
        signatures=[
            "(text STRING, pattern STRING) -> TIMESTAMP",
            "(text STRING, pattern STRING, zone STRING) -> TIMESTAMP",
        ],
        doc=f"The TIMESTAMP in a text; `zone` (UTC) is the default zone. {_FORMATS}",
        python=parse_timestamp,
        examples={
            "PARSE_TIMESTAMP('2021-06-31 12:18:39.446', 'yyyy-MM-dd HH:mm:ss.SSS')": "'2021-06-30T12:18:39.446'",
            "PARSE_TIMESTAMP('2018-05-11T21:58:33 PST', 'yyyy-MM-dd''T''HH:mm:ss zzz')": "'2018-05-12T04:58:33'",
            "PARSE_TIMESTAMP('2020', 'yyyy', 'America/New_York')": "'2020-01-01T05:00:00'",
            "PARSE_TIMESTAMP(NULL, 'yyyy')": "NULL",
        },
    ),
    time_function(
        "stringtodate",
        signature="(text STRING, pattern STRING) -> INTEGER",
        doc=f"The days since 1970 of the date in a text. {_FORMATS}",
        python=parse_days,
        examples={"STRINGTODATE('01/01/2022', 'dd/MM/yyyy')": "18993", "STRINGTODATE(NULL, 'yyyy')": "NULL"},
        deprecated="PARSE_DATE",
    ),
    time_function(
        "stringtotimestamp",
        signatures=["(text STRING, pattern STRING) -> BIGINT", "(text STRING, pattern STRING, zone STRING) -> BIGINT"],
        doc=f"The milliseconds since 1970 of the moment in a text. {_FORMATS}",
        python=parse_timestamp,
        examples={
            "STRINGTOTIMESTAMP('2020-05-11T21:58:33z', 'yyyy-MM-dd''T''HH:mm:ssX')": "1589234313000",
            "STRINGTOTIMESTAMP(NULL, 'yyyy')": "NULL",
        },
        deprecated="PARSE_TIMESTAMP",
    ),
    _adding("timeadd", TIME, 1, {"TIMEADD(MINUTES, 90, '23:00:00')": "'00:30:00'"}),
    _adding("timesub", TIME, -1, {"TIMESUB(MILLISECONDS, 10, '00:00:00.005')": "'23:59:59.995'"}),
    _adding("timestampadd", TIMESTAMP, 1, {"TIMESTAMPADD(HOURS, 3, '2020-12-31T22:00:00')": "'2021-01-01T01:00:00'"}),
    _adding("timestampsub", TIMESTAMP, -1, {"TIMESTAMPSUB(SECONDS, 1, '1970-01-01')": "'1969-12-31T23:59:59'"}),
    time_function(
        "timestamptostring",
        signatures=[
            "(milliseconds BIGINT, pattern STRING) -> STRING",
            "(milliseconds BIGINT, pattern STRING, zone STRING) -> STRING",
        ],
        doc=f"Milliseconds since 1970 as text. {_FORMATS}",
        python=format_epoch_ms,
        examples={
            "TIMESTAMPTOSTRING(1526075913000, 'yyyy-MM-dd HH:mm:ss zzz', 'Europe/London')": "'2018-05-11 22:58:33 BST'",
            "TIMESTAMPTOSTRING(NULL, 'yyyy')": "NULL",
        },
        deprecated="FORMAT_TIMESTAMP",
    ),
    time_function(
        "unix_date",
        signatures=[
            variant("() -> INTEGER", sql=f"CAST({_NOW_MS} // 86400000 AS INTEGER)"),
            variant("(date DATE) -> INTEGER", sql="CAST(:date - CAST('1970-01-01' AS DATE) AS INTEGER)"),
        ],
        doc="The days since 1970-01-01, of a DATE or of today (in UTC).",
        examples={"UNIX_DATE('1970-01-11')": "10", "UNIX_DATE() > 20000": "true", "UNIX_DATE(NULL)": "NULL"},
    ),
    time_function(
        "unix_timestamp",
        signatures=[
            variant("() -> BIGINT", sql=_NOW_MS),
            variant("(moment TIMESTAMP) -> BIGINT", sql="epoch_ms(:moment)"),
        ],
        doc="The milliseconds since 1970-01-01T00:00:00 UTC, of a TIMESTAMP or of now.",
        examples={
            "UNIX_TIMESTAMP('2020-05-11T21:58:33')": "1589234313000",
            "UNIX_TIMESTAMP() > 1589234313000": "true",
            "UNIX_TIMESTAMP(NULL)": "NULL",
        },
    ),
)
