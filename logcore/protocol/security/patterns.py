"""Patterns that clients send, as Kafka's: of RE2, whose time grows with the text alone."""

from __future__ import annotations

from collections.abc import Callable

import re2


class InvalidPattern(ValueError):
    """One that cannot be matched."""


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a whole name fits. Raises `InvalidPattern`.

    >>> matcher("orders-.*|bills")("orders-7"), matcher("a.*")("ba")
    (True, False)
    """
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidPattern(f'"{pattern}" is no pattern: {error}') from error
    return lambda name: compiled.fullmatch(name) is not None
