"""How patterns are matched: in linear time if RE2 supports the pattern, otherwise within the row's time limit.

Python's `re` backtracks, holds the GIL, and cannot be stopped: `(a+)+$` and forty letters hang a process. So it only
validates users' patterns. RE2 (`google-re2`, BSD-3-Clause, Google's) never backtracks; it has no lookaround, no
backreferences and no possessive quantifiers. Those patterns go to `regex` (Apache-2.0 and CNRI-Python), which releases
the GIL and stops at its time limit.

Both find the same matches as `re`, so results do not depend on the matcher: RE2 takes the same match as a backtracking
matcher does, except where a repeated group may match nothing, case is ignored beyond ASCII, or a match is empty.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import re2
import regex

from .bounds import Timer, check_bytes, out_of_time

# `$` and `\Z`: before the end, or before the line terminator at the end. As a lookahead for who has them; RE2 takes the
# terminator into a group of its own, which is no part of the match.
AT_END = r"(?=(?:\r\n|[\n\r\x85\u2028\u2029])?\Z)"
_AT_END_RE2 = r"((?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?)\z"
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|.)", re.DOTALL)
_STEPS_MAX = 200_000_000  # of RE2's slowest way, which nothing stops: about a second


class Match(Protocol):
    """What `re.Match` and `regex.Match` have in common."""

    def __getitem__(self, group: int | str, /) -> str | Any: ...
    def start(self) -> int: ...
    def end(self) -> int: ...


class Pattern:
    """A pattern in Python's spelling, with the methods of `re.Pattern` that functions need; all raise `BoundExceeded`.

    `linear`: as far as is known, RE2 finds the same. `whole_unicode`: the case of all letters is ignored.
    """

    def __init__(self, text: str, *, linear: bool, ignores_case: bool, whole_unicode: bool) -> None:
        self._text = text
        flags = regex.VERSION0 | (regex.UNICODE if whole_unicode else regex.ASCII)
        self._bounded = regex.compile(text.replace("(?iu", "(?i") if whole_unicode else text, flags)
        self.groups: int = self._bounded.groups
        self._names: Mapping[str, int] = self._bounded.groupindex
        self._ignores_case = ignores_case
        self._cut_end = text.endswith(AT_END)
        self._linear = _linear(text) if linear and not whole_unicode else None

    def search(self, text: str) -> Match | None:
        """The first match."""
        return next(self.finditer(text), None)

    def finditer(self, text: str) -> Iterator[Match]:
        """All matches, from left to right."""
        if self._fits_linear(text):
            return self._by_re2(text)
        return self._by_regex(text, 0, Timer())

    def sub(self, new: Callable[[Match], str], text: str) -> str:
        """The text with every match replaced by what `new` makes of it."""
        parts: list[str] = []
        at = size = 0
        for match in self.finditer(text):
            parts += (text[at : match.start()], new(match))
            at = match.end()
            size += len(parts[-2]) + len(parts[-1])
            check_bytes(size)
        return "".join([*parts, text[at:]])

    @property
    def matches_nothing(self) -> bool:
        """Whether the pattern matches the empty text."""
        return self._bounded.fullmatch("", timeout=Timer().left_s, concurrent=True) is not None

    def _fits_linear(self, text: str) -> bool:
        """RE2 folds the case of all of Unicode, Java only that of ASCII."""
        if self._linear is None or (self._ignores_case and not (text.isascii() and self._text.isascii())):
            return False
        return self._linear.programsize * len(text) <= _STEPS_MAX

    def _by_re2(self, text: str) -> Iterator[Match]:
        """An empty match is where matchers differ in how they go on, and `regex` goes on as `re` does."""
        assert self._linear is not None
        timer = Timer()
        for found in self._linear.finditer(text.encode() if text.isascii() else text):
            end = found.end()
            if self._cut_end and found.start(self.groups + 1) >= 0:
                end = found.start(self.groups + 1)
            if end == found.start():
                yield from self._by_regex(text, end, timer)
                return
            yield _LinearMatch(text, found, end, self._names)
            if end != found.end():
                yield from self._by_regex(text, end, timer)
                return
            _ = timer.left_s

    def _by_regex(self, text: str, at: int, timer: Timer) -> Iterator[Match]:
        try:
            yield from self._bounded.finditer(text, at, concurrent=True, timeout=timer.left_s)
        except TimeoutError:
            raise out_of_time() from None


class _LinearMatch:
    """A match of RE2's; `end` is where it ends without the line terminator that its `$` took. `names`: of groups."""

    __slots__ = ("_end", "_found", "_names", "_text")

    def __init__(self, text: str, found: Any, end: int, names: Mapping[str, int]) -> None:
        self._text, self._found, self._end, self._names = text, found, end, names

    def __getitem__(self, group: int | str) -> str | None:
        number = self._names[group] if isinstance(group, str) else group
        start, end = self._found.span(number)
        if number == 0:
            end = self._end
        return None if start < 0 else self._text[start:end]

    def start(self) -> int:
        return self._found.start()

    def end(self) -> int:
        return self._end


def _linear(text: str) -> Any:
    """RE2's form of a pattern, or None where it has none: `$` in the middle, and whatever RE2 refuses."""
    options = re2.Options()
    options.log_errors = False
    body = text.removesuffix(AT_END) + (_AT_END_RE2 if text.endswith(AT_END) else "")
    with contextlib.suppress(re2.error):
        return re2.compile(_ESCAPE.sub(_re2_escape, body), options)
    return None


def _re2_escape(escape: re.Match[str]) -> str:
    digits = escape[1] or escape[2] or escape[3]
    return escape[0] if digits is None else f"\\x{{{int(digits, 16):x}}}"
