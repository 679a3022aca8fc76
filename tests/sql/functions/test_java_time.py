"""Java's date patterns format and parse as in Java."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis.strategies import integers, sampled_from

from millstream.sql.functions.java.java_fields import epoch_ms_of, moment_of
from millstream.sql.functions.java.java_time import InvalidTimePattern, compile_pattern
from millstream.sql.functions.java.java_zones import Unparsable, offset_seconds, zone_of
from millstream.sql.functions.java.simple_date import parse_lenient_date
from millstream.sql.functions.java.strftime import strftime_format
from millstream.sql.types import DATE, TIME, TIMESTAMP

MOMENT_MS = 1_526_075_913_005  # 2018-05-11T21:58:33.005 in UTC, a Friday


@pytest.mark.parametrize(
    ("zone", "change", "before", "after"),
    [
        ("America/St_Johns", "1987-04-05T03:31:00", -12_600, -9_000),  # at 00:01 there
        ("Africa/Monrovia", "1972-01-07T00:44:30", -2_670, 0),
        ("Australia/Lord_Howe", "2024-10-05T15:30:00", 37_800, 39_600),
        ("Europe/Berlin", "2024-03-31T01:00:00", 3_600, 7_200),
        ("America/New_York", "1883-11-18T17:00:00", -17_762, -18_000),
    ],
)
def test_clocks_change_at_the_second(zone: str, change: str, before: int, after: int) -> None:
    moment_ms = int(datetime.fromisoformat(change).replace(tzinfo=UTC).timestamp() * 1000)
    found = [offset_seconds(zone_of(zone), moment_ms + step) for step in (-840_000, -1, 0, 1, 840_000)]
    assert found == [before, before, after, after, after]


@pytest.mark.parametrize(
    ("pattern", "zone", "text"),
    [
        ("yyyy-MM-dd HH:mm:ss.SSS", "UTC", "2018-05-11 21:58:33.005"),
        ("yyyy-MM-dd HH:mm:ss zzz", "Europe/London", "2018-05-11 22:58:33 BST"),
        ("d/M/yy h:mm a", "America/New_York", "11/5/18 5:58 PM"),
        ("EEEE, dd MMMM uuuu G", "UTC", "Friday, 11 May 2018 AD"),
        ("X XXX xx Z ZZZZ O VV zzzz", "+0530", "+0530 +05:30 +0530 +0530 GMT+05:30 GMT+5:30 +05:30 +05:30"),
        ("HH:mm zzz", "PST", "14:58 PDT"),
        ("", "UTC", ""),
        ("X XXX xx zzzz", "UTC", "Z Z +0000 Coordinated Universal Time"),
        ("'o''clock' '' DDD Q QQQ w", "UTC", "o'clock ' 131 2 Q2 19"),
        ("A n ppH kk K", "UTC", "79113005 5000000 21 21 9"),
    ],
)
def test_a_moment_is_formatted_as_in_java(pattern: str, zone: str, text: str) -> None:
    assert compile_pattern(pattern).format(moment_of(MOMENT_MS, zone)) == text


@pytest.mark.parametrize(
    ("pattern", "text", "epoch_ms"),
    [
        ("yyyy-MM-dd'T'HH:mm:ssX", "2018-05-11T21:58:33z", 1_526_075_913_000),
        ("yyyy-MM-dd'T'HH:mm:ss zzz", "2018-05-11T21:58:33 PST", 1_526_101_113_000),
        ("yyyy-MM-dd'T'HH:mm:ss.SX", "2019-08-27T13:31:09.2+0000", 1_566_912_669_200),
        ("yyyyMMddHHmmssSSS", "20180511215833005", MOMENT_MS),
        ("yyyy-MM-dd HH:mm:ss.SSS", "2021-06-31 12:18:39.446", 1_625_055_519_446),
        ("MMM d, yyyy", "MAY 11, 2018", 1_525_996_800_000),
        ("yyyy-MM-dd[ HH:mm]", "2018-05-11", 1_525_996_800_000),
        ("HH:mm", "01:01", 3_660_000),
        ("yyyy", "2020", 1_577_836_800_000),
        ("DDD-yyyy", "366-2020", 1_609_372_800_000),
        ("yyyy-MM-dd HH:mm VV", "2018-05-11 17:58 America/New_York", 1_526_075_880_000),
        ("uuuu-MM-dd", "0000-01-01", -62_167_219_200_000),
        ("uuuu-DDD", "-0004-366", -62_261_913_600_000),
        ("yyyy-MM-dd G", "0001-12-31 BC", -62_135_683_200_000),
        ("yyyy-MM-dd", "+10000-01-01", 253_402_300_800_000),
        ("uuuu", "+12000", 316_516_204_800_000),
    ],
)
def test_a_text_is_parsed_as_in_java(pattern: str, text: str, epoch_ms: int) -> None:
    assert epoch_ms_of(compile_pattern(pattern).parse(text), UTC) == epoch_ms


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd", "2018-05-11 "),
        ("yyyy-MM-dd", "2018-5-11"),
        ("yyyy-MM-dd", "2018-13-11"),
        ("yyyy-MM-dd", "12018-01-01"),
        ("yyyy-MM-dd", "0000-01-01"),
        ("yyyy-MM-dd", "-0001-01-01"),
        ("uuuu-MM-dd", "+999999999-01-01"),
        ("HH:mm", "24:00"),
        ("EEE yyyy-MM-dd", "Mon 2018-05-11"),
        ("yyyy VV", "2018 Nowhere/City"),
        ("yyyy-MM-dd HH h a", "2018-05-11 11 10 AM"),
    ],
)
def test_a_text_that_java_refuses_is_refused(pattern: str, text: str) -> None:
    with pytest.raises(Unparsable):
        epoch_ms_of(compile_pattern(pattern).parse(text), UTC)


@pytest.mark.parametrize("pattern", ["yyyy-'MM", "HHH", "MMMMMM", "b{", "]", "j", "ppp"])
def test_a_pattern_that_java_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidTimePattern):
        compile_pattern(pattern)


@given(
    integers(-60_000_000_000_000, 250_000_000_000_000) | integers(-9 * 10**15, 9 * 10**15),
    sampled_from(["UTC", "+0530", "Asia/Tokyo"]),
)
def test_parsing_undoes_formatting(epoch_ms: int, zone: str) -> None:
    pattern = compile_pattern("uuuu-MM-dd'T'HH:mm:ss.SSSXXXXX")
    assert epoch_ms_of(pattern.parse(pattern.format(moment_of(epoch_ms, zone))), UTC) == epoch_ms


@pytest.mark.parametrize(
    ("pattern", "text", "day"),
    [
        ("dd-MMM-yyyy", "01-JAN-2022", 18_993),
        ("yyyy-MM-dd'Lit'", "2018-05-11Lit", 17_662),
        ("MMM-yyyy", "jan-2022", 18_993),
        ("yyyy-MM-dd", "2022-13-01", 19_358),
        ("yyyyMMdd", "20220201", 19_024),
    ],
)
def test_simple_dates_are_read_leniently(pattern: str, text: str, day: int) -> None:
    assert parse_lenient_date(pattern, text) == day


def test_strftime_is_used_only_where_it_says_the_same() -> None:
    assert strftime_format("yyyy-MM-dd'T'HH:mm:ss.SSS '100%'", TIMESTAMP) == "%Y-%m-%dT%H:%M:%S.%g 100%%"
    assert strftime_format("yyyy-MM-dd HH", DATE) is None
    assert strftime_format("yyyy", TIME) is None
    assert strftime_format("d/M/yyyy", TIMESTAMP) is None
    assert strftime_format("yyyy[-MM]", TIMESTAMP) is None
