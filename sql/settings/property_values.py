"""Values of properties that are more than a word or a number. Their effects are implemented where they are used."""

from __future__ import annotations

import json
import re
from typing import Any, Literal, cast

from ..iso_time import InvalidTime, epoch_ms

Reset = Literal["earliest", "latest"] | int
"""Where to begin without a committed offset; a number is a time in ms."""

_FORMS = "earliest, latest, a time (2026-01-01T00:00:00Z), or milliseconds since 1970"
_SHAPE = '{"topic": {"0": 42}}: offsets by topic and partition'
_SIZE = re.compile(r"\d+(\.\d+)?\s*(([KMGT]i?)?B|%)", re.IGNORECASE)


def parse_reset(text: str) -> Reset:
    """A value of `auto.offset.reset`.

    >>> parse_reset("Earliest"), parse_reset("1970-01-01T00:00:01Z"), parse_reset("86400000")
    ('earliest', 1000, 86400000)

    Raises `ValueError`, whose text says what is expected.
    """
    written = text.strip()
    if written.lower() in ("earliest", "latest"):
        return cast(Reset, written.lower())
    if written.isdecimal() and len(written) < 19:
        return int(written)
    try:
        if "-" in written:
            return epoch_ms(written)
    except InvalidTime:
        pass
    raise ValueError(_FORMS)


def parse_start_offsets(text: str) -> dict[str, dict[int, int]]:
    """A value of `millstream.start.offsets`; an empty text names no topics.

    >>> parse_start_offsets('{"clicks": {"0": 42}}')
    {'clicks': {0: 42}}

    Raises `ValueError`, whose text says what is expected.
    """
    if not text.strip():
        return {}
    try:
        given: Any = json.loads(text)
        return {str(topic): {int(part): _offset(offset) for part, offset in of.items()} for topic, of in given.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise ValueError(_SHAPE) from None


def parse_memory(text: str) -> str:
    """A size in DuckDB's notation, or an empty text. Raises `ValueError`, whose text says what is expected.

    >>> parse_memory("512MB"), parse_memory("80%"), parse_memory("")
    ('512MB', '80%', '')
    """
    if text and not _SIZE.fullmatch(text):
        raise ValueError("a size, for example 512MB or 2GB")
    return text


def _offset(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(_SHAPE)
    return value
