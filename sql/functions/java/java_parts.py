"""The pieces of a date pattern: each formats a moment, and reads its part of a text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from .java_fields import NUMBERS, SECOND, Moment, Parsed
from .java_zones import LONG_NAMES, OFFSET, ZONES_BY_NAME, Unparsable, fixed_zone, in_python_years, zone_of


class PatternPart:
    """A piece of a pattern."""

    def format(self, moment: Moment) -> str:
        raise AssertionError

    def parse(self, text: str, at: int, parsed: Parsed) -> int:
        """Read at `at`; where the rest begins. Raises `Unparsable`."""
        raise AssertionError


@dataclass(frozen=True, slots=True)
class LiteralPart(PatternPart):
    text: str

    def format(self, moment: Moment) -> str:
        return self.text

    def parse(self, text: str, at: int, parsed: Parsed) -> int:
        end = at + len(self.text)
        if text[at:end].lower() != self.text.lower():
            raise Unparsable(f"expected {self.text!r}")
        return end


@dataclass(frozen=True, slots=True)
class NumberPart(PatternPart):
    """Digits of a field. `reserved` are those of the fixed-width numbers that follow without anything between."""

    letter: str
    least: int
    most: int
    exceeds: bool = False  # more digits than `least` need a sign before them
    reduced: bool = False  # two digits of a year, 2000 to 2099
    reserved: int = 0

    def format(self, moment: Moment) -> str:
        value = NUMBERS[self.letter][1](moment)
        if self.reduced:
            return f"{value % 100:02}"
        digits = str(abs(value))
        if len(digits) > self.most:
            raise Unparsable(f"{value} has more than {self.most} digits")
        sign = "-" if value < 0 else "+" if self.exceeds and len(digits) > self.least else ""
        return sign + digits.zfill(self.least)

    def parse(self, text: str, at: int, parsed: Parsed) -> int:
        start = at
        sign = text[at : at + 1] if self.most > 2 and text[at : at + 1] in ("+", "-") else ""
        at += len(sign)
        end = at
        while end < len(text) and text[end] in "0123456789":
            end += 1
        end = max(min(end - self.reserved, at + self.most), min(end, at + self.least))
        digits = end - at
        if (
            digits < self.least
            or digits == 0
            or (self.exceeds and (digits > self.least) != (sign == "+") and sign != "-")
        ):
            raise Unparsable(f"no number at {start} in {text!r}")
        value = int(text[at:end])
        name = NUMBERS[self.letter][0]
        parsed.put(name, 2000 + value if self.reduced else -value if sign == "-" else value)
        return end


@dataclass(frozen=True, slots=True)
class FractionPart(PatternPart):
    """SSS: that many digits of the second's fraction."""

    digits: int

    def format(self, moment: Moment) -> str:
        return f"{moment.nanos % SECOND:09}"[: self.digits]

    def parse(self, text: str, at: int, parsed: Parsed) -> int:
        digits = text[at : at + self.digits]
        if len(digits) < self.digits or not digits.isascii() or not digits.isdigit():
            raise Unparsable("no fraction of a second")
        parsed.put("nano", int(digits.ljust(9, "0")))
        return at + self.digits


@dataclass(frozen=True, slots=True)
class NamePart(PatternPart):
    """A field as one of some words; the longest that fits is read."""

    field: str
    words: tuple[tuple[str, int], ...]
    value: Callable[[Moment], int]

    def format(self, moment: Moment) -> str:
        value = self.value(moment)
        return next(word for word, number in self.words if number == value)

    def parse(self, text: str, at: int, parsed: Parsed) -> int:
        rest = text[at:].lower()
        found = max((w for w in self.words if rest.startswith(w[0].lower())), key=lambda w: len(w[0]), default=None)
        if found is None:
            raise Unparsable(f"no name of a {self.field} at {at}")
        parsed.put(self.field, found[1])
        return at + len(found[0])


@dataclass(frozen=True, slots=True)
class OffsetPart(PatternPart):
    """X, x, Z, O: `form` is like +HH:MM; `zero` is what stands for no offset."""

    form: str
    zero: str

    def format(self, moment: Moment) -> str:
        offset = moment.offset
        if offset == 0:
            return self.zero
        hours, minutes, seconds = abs(offset) // 3600, abs(offset) // 60 % 60, abs(offset) % 60
        colon = ":" if ":" in self.form else ""
        text = ("-" if offset < 0 else "+") + f"{hours:02}"
        if "MM" in self.form or minutes:
            text += f"{colon}{minutes:02}"
        return text + (f"{colon}{seconds:02}" if "ss" in self.form and seconds else "")

    def parse(self, text: str, at: int, parsed: Parsed) -> int:
        if self.zero and text[at : at + len(self.zero)].upper() == self.zero.upper():
            parsed.zone = UTC
            return at + len(self.zero)
        colon = ":" if ":" in self.form else ""
        minutes = rf"(?:{colon}(\d\d))" + ("" if "MM" in self.form else "?")
        seconds = rf"(?:{colon}(\d\d))?" if "ss" in self.form else "()"
        match = re.compile(rf"([+-])(\d\d){minutes}{seconds}").match(text, at)
        if match is None:
            raise Unparsable(f"no offset at {at}")
        parsed.zone = fixed_zone(match)
        return match.end()


@dataclass(frozen=True, slots=True)
class LocalizedOffsetPart(PatternPart):
    """O and OOOO: GMT+8, GMT+08:00."""

    full: bool

    def format(self, moment: Moment) -> str:
        offset = moment.offset
        if offset == 0:
            return "GMT"
        hours, minutes = abs(offset) // 3600, abs(offset) // 60 % 60
        sign = "-" if offset < 0 else "+"
        if self.full:
            return f"GMT{sign}{hours:02}:{minutes:02}"
        return f"GMT{sign}{hours}" + (f":{minutes:02}" if minutes else "")

    def parse(self, text: str, at: int, parsed: Parsed) -> int:
        match = re.compile(r"GMT(?:([+-])(\d{1,2})(?::(\d\d)(?::(\d\d))?)?)?", re.IGNORECASE).match(text, at)
        if match is None:
            raise Unparsable(f"no offset at {at}")
        parsed.zone = fixed_zone(match) if match[1] else UTC
        return match.end()


@dataclass(frozen=True, slots=True)
class ZonePart(PatternPart):
    """VV (the zone's id), z (PST), zzzz (Pacific Standard Time)."""

    style: str

    def format(self, moment: Moment) -> str:
        if moment.zone is None:
            raise Unparsable("there is no zone to format")
        if self.style == "id" or not isinstance(moment.zone, ZoneInfo):
            name = moment.zone_name
            if OFFSET.fullmatch(name) and name[0] in "+-":
                return OffsetPart("+HH:MM:ss", "Z").format(moment)
            return LONG_NAMES.get(name, name) if self.style == "long" else name
        short = (
            datetime.fromtimestamp(in_python_years(moment.epoch_ms // 1000), moment.zone).tzname() or moment.zone_name
        )
        return LONG_NAMES.get(short, moment.zone_name) if self.style == "long" else short

    def parse(self, text: str, at: int, parsed: Parsed) -> int:
        if self.style == "long":
            for short, name in LONG_NAMES.items():
                if text[at : at + len(name)].lower() == name.lower():
                    parsed.zone = zone_of(ZONES_BY_NAME[short])
                    return at + len(name)
        if match := re.compile(r"(?:(?:UTC|GMT|UT)(?=[+-]))?([+-])(\d\d?)(?::?(\d\d)(?::?(\d\d))?)?").match(text, at):
            parsed.zone = fixed_zone(match)
            return match.end()
        match = re.compile(r"[A-Za-z][A-Za-z0-9_]*(?:[/-][A-Za-z0-9_]+)*").match(text, at)
        if match is None:
            raise Unparsable(f"no zone at {at}")
        word = match[0]
        parsed.zone = zone_of(ZONES_BY_NAME.get(word.upper(), word) if self.style != "id" else word)
        return match.end()


@dataclass(frozen=True, slots=True)
class PaddedPart(PatternPart):
    """ppH: what follows, padded with spaces on the left."""

    width: int
    inner: PatternPart

    def format(self, moment: Moment) -> str:
        return self.inner.format(moment).rjust(self.width)

    def parse(self, text: str, at: int, parsed: Parsed) -> int:
        end = at + self.width
        if end > len(text):
            raise Unparsable("the text ends early")
        start = at + len(text[at:end]) - len(text[at:end].lstrip(" "))
        if self.inner.parse(text[:end], start, parsed) != end:
            raise Unparsable(f"no padded value at {at}")
        return end


@dataclass(frozen=True, slots=True)
class OptionalPart(PatternPart):
    """[…]: left out in formatting where a field is missing, in parsing where the text does not follow it."""

    parts: tuple[PatternPart, ...]

    def format(self, moment: Moment) -> str:
        try:
            return "".join(part.format(moment) for part in self.parts)
        except Unparsable:
            return ""

    def parse(self, text: str, at: int, parsed: Parsed) -> int:
        trial = Parsed(dict(parsed.fields), parsed.zone)
        end = at
        try:
            for part in self.parts:
                end = part.parse(text, end, trial)
        except Unparsable:
            return at
        parsed.fields, parsed.zone = trial.fields, trial.zone
        return end
