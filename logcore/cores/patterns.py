"""Patterns of topic names that clients send. Like Kafka's they are RE2 expressions: matching is linear in the name."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import re2

_MEMORY_BYTES_MAX: Final = 32 * 1024  # a few hundred characters and repetitions; it also bounds the work per name
_NAMES_REMEMBERED: Final = 20_000


class InvalidPattern(ValueError):
    """A pattern that is invalid or too large."""


class NamePattern:
    """Matches whole names.

    State: a cache of results, because groups ask about all topics at each heartbeat.

    >>> pattern = NamePattern("orders-.*|bills")
    >>> pattern.fits("orders-7"), pattern.fits("my-bills")
    (True, False)
    """

    def __init__(self, text: str) -> None:
        """Raises `InvalidPattern`, also if matching would take too long."""
        self.text = text
        self._matches = lru_cache(_NAMES_REMEMBERED)(_matcher(text))

    def fits(self, name: str) -> bool:
        return self._matches(name) is not None


def _matcher(text: str) -> Callable[[str], object]:
    """A function that returns None for a name that does not match."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES_MAX
    try:
        return re2.compile(text, options).fullmatch
    except re2.error as error:
        raise InvalidPattern(f'"{text}" is no pattern of names: {error}') from error
