"""Dates read by Java's older `SimpleDateFormat` patterns, which PARSE_DATE takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime

from .java_fields import DAY_MS, EPOCH_ORDINAL, Fields
from .java_time import MONTHS, WEEKDAYS, InvalidTimePattern
from .java_zones import Unparsable

_SIMPLE = re.compile(r"''|'((?:[^']|'')*)'|([A-Za-z])\2*|.", re.DOTALL)


def parse_lenient_date(pattern: str, text: str) -> int:
    """Days since 1970 by a `SimpleDateFormat` pattern: months and days may run over, text may follow.

    >>> parse_lenient_date("dd-MMM-yyyy", "01-JAN-2022")
    18993

    Raises `Unparsable`, also where the text holds a time of day.
    """
    fields: Fields = {}
    at = 0
    tokens = _simple_tokens(pattern)
    for position, (letter, width) in enumerate(tokens):
        if not letter:
            if text[at : at + len(width)].lower() != width.lower():
                raise Unparsable(f"expected {width!r}")
            at += len(width)
            continue
        following = tokens[position + 1][0] if position + 1 < len(tokens) else ""
        at = _simple_field(
            letter, len(width), text, at, fields, adjacent=following in _SIMPLE_NUMBERS and following != ""
        )
    time_ms = (
        (fields.get("H", 0) % 24 * 60 + fields.get("m", 0)) * 60_000 + fields.get("s", 0) * 1000 + fields.get("S", 0)
    )
    day = _simple_day(fields)
    if time_ms % DAY_MS:
        raise Unparsable("the text holds a time of day")
    return day + time_ms // DAY_MS


_SIMPLE_NUMBERS = "yMdDHkKhmsSu"


def _simple_tokens(pattern: str) -> list[tuple[str, str]]:
    """(letter, run) for fields, ("", text) for text."""
    tokens: list[tuple[str, str]] = []
    for match in _SIMPLE.finditer(pattern):
        if match[0] == "''":
            tokens.append(("", "'"))
        elif match[1] is not None:
            tokens.append(("", match[1].replace("''", "'")))
        elif match[2]:
            tokens.append((match[2], match[0]))
        else:
            tokens.append(("", match[0]))
    return tokens


def _simple_field(letter: str, width: int, text: str, at: int, fields: Fields, *, adjacent: bool) -> int:
    if letter == "M" and width >= 3:
        return _simple_word("M", MONTHS, text, at, fields)
    if letter == "E":
        return _simple_word("E", WEEKDAYS, text, at, fields)
    if letter == "G":
        return _simple_word("G", ("BC", "AD"), text, at, fields)
    if letter == "a":
        at = _simple_word("a", ("AM", "PM"), text, at, fields)
        return at
    if letter not in _SIMPLE_NUMBERS:
        raise InvalidTimePattern(f"{letter} is no pattern of a date")
    while at < len(text) and text[at].isspace():
        at += 1
    end = at
    while end < len(text) and text[end] in "0123456789" and not (adjacent and end - at >= width):
        end += 1
    if end == at:
        raise Unparsable(f"no number at {at}")
    value = int(text[at:end])
    if letter == "y" and width <= 2 and value < 100:
        value = _near_year(value)
    fields["H" if letter in "kKh" else letter] = value
    return end


def _near_year(two_digits: int) -> int:
    """The year from 80 years ago to 19 years from now that ends in these digits."""
    first = datetime.now(UTC).year - 80
    return first + (two_digits - first) % 100


def _simple_word(letter: str, words: Sequence[str], text: str, at: int, fields: Fields) -> int:
    rest = text[at:].lower()
    for number, word in enumerate(words):
        for form in (word, word[:3]):
            if rest.startswith(form.lower()):
                fields[letter] = number + 1
                return at + len(form)
    raise Unparsable(f"no {words[0]}, {words[1]}, … at {at}")


def _simple_day(fields: Fields) -> int:
    year = fields.get("y", 1970)
    if "D" in fields and "M" not in fields:
        return date(year, 1, 1).toordinal() - EPOCH_ORDINAL + fields["D"] - 1
    years, month = divmod(fields.get("M", 1) - 1, 12)
    return date(year + years, month + 1, 1).toordinal() - EPOCH_ORDINAL + fields.get("d", 1) - 1
