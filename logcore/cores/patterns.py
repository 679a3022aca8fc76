"""Patterns of names that clients send, as Kafka's: of RE2, whose time grows with the name alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import re2

_MEMORY_BYTES_MAX: Final = 32 * 1024  # some hundred characters and repetitions: the work for a name grows with it
_NAMES_REMEMBERED: Final = 20_000


class InvalidPattern(ValueError):
    """One that cannot be matched."""


class NamePattern:
    """Which whole names fit.

    State: what it has answered, as groups ask about all topics at each heartbeat.

    >>> pattern = NamePattern("orders-.*|bills")
    >>> pattern.fits("orders-7"), pattern.fits("my-bills")
    (True, False)
    """

    def __init__(self, text: str) -> None:
        """Raises `InvalidPattern`, also where it would take too long to match."""
        self.text = text
        self._matches = lru_cache(_NAMES_REMEMBERED)(_matcher(text))

    def fits(self, name: str) -> bool:
        return self._matches(name) is not None


def _matcher(text: str) -> Callable[[str], object]:
    """What gives None for a name that does not fit."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES_MAX
    try:
        return re2.compile(text, options).fullmatch
    except re2.error as error:
        raise InvalidPattern(f'"{text}" is no pattern of names: {error}') from error
