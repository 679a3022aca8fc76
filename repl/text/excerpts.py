"""Errors on a screen: unprintable characters become escapes, and the carets stay under the text that they mark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from .tables import printable, text_width

_EXCERPT: Final = re.compile(r"(?P<prefix>\s*\d+ \| )(?P<text>.*)", re.DOTALL)
_CARETS: Final = re.compile(r"(?P<prefix>\s*\| )(?P<blanks> *)(?P<carets>\^+)")


def shown_lines(text: str) -> Iterator[str]:
    """The lines of a rendered error.

    >>> print(*shown_lines("error: no\\n  1 | 日本 \\x1b x\\n    |    ^ "), sep="\\n")
    error: no
      1 | 日本 \\x1b x
        |      ^^^^
    """
    before = ""
    for line in text.split("\n"):
        carets, excerpt = _CARETS.fullmatch(line.rstrip()), _EXCERPT.fullmatch(before)
        if carets is not None and excerpt is not None and len(carets["prefix"]) == len(excerpt["prefix"]):
            start = len(carets["blanks"])
            yield carets["prefix"] + _moved(excerpt["text"], start, start + len(carets["carets"]))
        else:
            yield printable(line)
        before = line


def _moved(text: str, start: int, end: int) -> str:
    marked = text_width(printable(text[start:end])) + max(0, end - max(start, len(text)))
    return " " * text_width(printable(text[:start])) + "^" * max(1, marked)


def is_carets(line: str) -> bool:
    return _CARETS.fullmatch(line) is not None
