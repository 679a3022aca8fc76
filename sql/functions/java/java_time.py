"""Java's date and time patterns: those of `DateTimeFormatter`, to format and to parse.

`compile_pattern` turns a pattern into a `TimePattern` once; it formats moments and parses texts into fields. What a
function does with fields that a text does not give is the function's business (`datetime.py`). Texts are English.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from .java_fields import DAY_MS, EPOCH_ORDINAL, HOUR, Moment, Parsed, resolve
from .java_parts import (
    FractionPart,
    LiteralPart,
    LocalizedOffsetPart,
    NamePart,
    NumberPart,
    OffsetPart,
    OptionalPart,
    PaddedPart,
    PatternPart,
    ZonePart,
)
from .java_zones import Unparsable

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class InvalidTimePattern(ValueError):
    """The pattern is none of Java's."""


@dataclass(frozen=True, slots=True)
class TimePattern:
    """A pattern that was understood."""

    parts: tuple[PatternPart, ...]
    plain: re.Pattern[str] | None  # of a pattern that only has a date and a time in digits of fixed width

    def format(self, moment: Moment) -> str:
        """Raises `Unparsable` where the pattern asks for what the moment has not."""
        return "".join(part.format(moment) for part in self.parts)

    def parse(self, text: str) -> Parsed:
        """The fields that the whole text gives, years and hours resolved. Raises `Unparsable`."""
        parsed = Parsed({})
        at = 0
        for part in self.parts:
            at = part.parse(text, at, parsed)
        if at < len(text):
            raise Unparsable(f"unparsed text at {at}: {text[at:]!r}")
        resolve(parsed.fields)
        return parsed

    def parse_plain(self, text: str) -> int | None:
        """What the text says in UTC, in ms since 1970, found out fast; None where that takes a closer look."""
        match = self.plain.fullmatch(text) if self.plain is not None else None
        if match is None:
            return None
        digits = match.groupdict()
        day = _day(digits["y"], digits["M"], digits["d"])
        hour, minute, second = int(digits.get("H", 0)), int(digits.get("m", 0)), int(digits.get("s", 0))
        if day is None or hour > 23 or minute > 59 or second > 59:
            return None
        ms = int(digits["S"][:3].ljust(3, "0")) if "S" in digits else 0
        return day * DAY_MS + hour * 3_600_000 + minute * 60_000 + second * 1000 + ms


@lru_cache(maxsize=16_384)
def _day(year: str, month: str, day: str) -> int | None:
    try:
        return date(int(year), int(month), int(day)).toordinal() - EPOCH_ORDINAL
    except ValueError:
        return None


def _plain(parts: tuple[PatternPart, ...]) -> re.Pattern[str] | None:
    """The regular expression of a pattern with year, month and day, where nothing in it varies in width."""
    out: list[str] = []
    for part in parts:
        match part:
            case LiteralPart():
                out.append(re.escape(part.text))
            case NumberPart(letter="y" | "u", least=4):
                out.append("(?P<y>[0-9]{4})")
            case NumberPart(letter="M" | "d" | "H" | "m" | "s", least=2):
                out.append(f"(?P<{part.letter}>[0-9]{{2}})")
            case FractionPart():
                out.append(f"(?P<S>[0-9]{{{part.digits}}})")
            case _:
                return None
    text = "".join(out)
    once = all(text.count(f"(?P<{letter}>") <= 1 for letter in "yMdHmsS")
    return re.compile(text) if once and all(f"(?P<{letter}>" in text for letter in "yMd") else None


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> TimePattern:
    """The pattern, understood. Raises `InvalidTimePattern`.

    >>> from .java_fields import moment_of
    >>> compile_pattern("dd/MMM/yyyy HH:mm:ss.SSS").format(moment_of(1_589_234_313_005, "UTC"))
    '11/May/2020 21:58:33.005'
    >>> compile_pattern("yyyyMMdd['T'HH]").parse("20200511").fields
    {'month': 5, 'day': 11, 'year': 2020}
    """
    parts, at = _read(pattern, 0, 0)
    assert at == len(pattern)
    return TimePattern(parts, _plain(parts))


def _read(pattern: str, at: int, depth: int) -> tuple[tuple[PatternPart, ...], int]:
    """The parts up to the end, or to the bracket that closes this section."""
    parts: list[PatternPart] = []
    pad = 0
    while at < len(pattern):
        sign = pattern[at]
        part: PatternPart | None
        if sign == "'":
            text, at = _literal(pattern, at)
            part = LiteralPart(text)
        elif sign == "[":
            inner, at = _read(pattern, at + 1, depth + 1)
            part = OptionalPart(inner)
        elif sign == "]":
            if depth == 0:
                raise InvalidTimePattern("a bracket is closed that was not opened")
            return _reserve(parts), at + 1
        elif sign.isascii() and sign.isalpha():
            end = at
            while end < len(pattern) and pattern[end] == sign:
                end += 1
            count, at = end - at, end
            if sign == "p":
                pad = count
                continue
            part = _field(sign, count)
        elif sign in "{}#":
            raise InvalidTimePattern(f"{sign} is reserved")
        else:
            part, at = LiteralPart(sign), at + 1
        parts.append(PaddedPart(pad, part) if pad else part)
        pad = 0
    if pad:
        raise InvalidTimePattern("a pad needs a field after it")
    return _reserve(parts), at


def _literal(pattern: str, at: int) -> tuple[str, int]:
    """The quoted text at `at`, and where it ends; a doubled quote stands for one."""
    out: list[str] = []
    at += 1
    if pattern.startswith("'", at):
        return "'", at + 1
    while at < len(pattern):
        if pattern[at] != "'":
            out.append(pattern[at])
            at += 1
        elif pattern.startswith("''", at):
            out.append("'")
            at += 2
        else:
            return "".join(out), at + 1
    raise InvalidTimePattern("a quote is not closed")


def _reserve(parts: list[PatternPart]) -> tuple[PatternPart, ...]:
    """Let a number of varying width leave the digits of the fixed ones right behind it."""
    out: list[PatternPart] = []
    reserved = 0
    for part in reversed(parts):
        if isinstance(part, FractionPart):
            reserved += part.digits
        elif isinstance(part, NumberPart) and part.least == part.most:
            reserved += part.least
        elif isinstance(part, NumberPart):
            part = NumberPart(part.letter, part.least, part.most, part.exceeds and not reserved, part.reduced, reserved)
            reserved = 0
        else:
            reserved = 0
        out.append(part)
    return tuple(reversed(out))


def _field(letter: str, count: int) -> PatternPart:
    if letter in "uyY":
        if count == 2:
            return NumberPart(letter, 2, 2, reduced=True)
        return NumberPart(letter, count, 19, exceeds=count >= 4)
    if letter in "MLQqEec" and (count > 2 or letter == "E"):
        return _name(letter, count)
    if letter == "S" and count <= 9:
        return FractionPart(count)
    if letter in "AnN":
        return NumberPart(letter, count, 19)
    if letter in "DdhHkKmsMLwWFeqQc":
        return _plain_number(letter, count)
    if letter == "a" and count == 1:
        return NamePart("half", (("AM", 0), ("PM", 1)), lambda m: m.nanos // HOUR // 12)
    if letter == "G" and count <= 5:
        words = {4: ("Before Christ", "Anno Domini"), 5: ("B", "A")}.get(count, ("BC", "AD"))
        return NamePart("era", ((words[0], 0), (words[1], 1)), lambda m: int(m.year > 0))
    return _zone_part(letter, count)


def _plain_number(letter: str, count: int) -> PatternPart:
    if count > (3 if letter == "D" else 1 if letter in "WFc" else 2):
        raise InvalidTimePattern(f"too many {letter}")
    if letter == "D":
        return NumberPart("D", count, 3)
    return NumberPart(letter, count, 2) if count == 2 else NumberPart(letter, 1, 19)


def _name(letter: str, count: int) -> PatternPart:
    if count > 5:
        raise InvalidTimePattern(f"too many {letter}")
    width = None if count == 4 else 1 if count == 5 else 3
    if letter in "ML":
        return NamePart("month", tuple((n[:width], i + 1) for i, n in enumerate(MONTHS)), lambda m: m.near_date.month)
    if letter in "Eec":
        words = tuple((n[:width], i + 1) for i, n in enumerate(WEEKDAYS))
        return NamePart("weekday", words, lambda m: m.near_date.isoweekday())
    long = ("1st quarter", "2nd quarter", "3rd quarter", "4th quarter")
    quarters = tuple((long[i] if count == 4 else str(i + 1) if count == 5 else f"Q{i + 1}", i + 1) for i in range(4))
    return NamePart("quarter", quarters, lambda m: (m.near_date.month + 2) // 3)


_OFFSETS = ("+HH", "+HHMM", "+HH:MM", "+HHMMss", "+HH:MM:ss")


def _zone_part(letter: str, count: int) -> PatternPart:
    match letter, count:
        case "X", 1 | 2 | 3 | 4 | 5:
            return OffsetPart(_OFFSETS[count - 1], "Z")
        case "x", 1 | 2 | 3 | 4 | 5:
            return OffsetPart(_OFFSETS[count - 1], ("+00", "+0000", "+00:00", "+0000", "+00:00")[count - 1])
        case "Z", 1 | 2 | 3:
            return OffsetPart("+HHMM", "+0000")
        case "Z" | "O", 4:
            return LocalizedOffsetPart(full=True)
        case "O", 1:
            return LocalizedOffsetPart(full=False)
        case "Z", 5:
            return OffsetPart("+HH:MM:ss", "Z")
        case "V", 2:
            return ZonePart("id")
        case "z" | "v", 1 | 2 | 3:
            return ZonePart("short")
        case "z" | "v", 4:
            return ZonePart("long")
        case _:
            raise InvalidTimePattern(f"{letter * count} is no pattern")
