"""Converts errors of data lake libraries to ours: temporary errors, errors that a user has to fix, and unknown errors.

The libraries have few classes of errors, and an object store gives the reason of a refusal only as text. So final
errors are recognized by class and by text. An error without a known class or text is retried for a limited time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from millstream.errors import MillstreamError

from ..connector_errors import ConnectorFailed, SystemFault, is_full, one_line, unavailable

_SHOWN_CHARACTERS: Final = 600
_ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")
_BACKTRACE: Final = re.compile(r"\s*\n\s+0: .*", re.DOTALL)  # a backtrace of Rust


@dataclass(frozen=True, slots=True)
class _Final:
    """Texts of errors for which waiting does not help."""

    pattern: re.Pattern[str]
    what: str
    hint: str


def _final(pattern: str, what: str, hint: str) -> _Final:
    return _Final(re.compile(pattern, re.IGNORECASE), what, f"{hint} Then RESTART CONNECTOR.")


_FINALS: Final = (
    _final(
        r"lacked (the necessary privileges|valid authentication)|access.?denied|permission denied"
        r"|\b(401 unauthorized|403 forbidden)\b|invalidaccesskeyid|signaturedoesnotmatch|expiredtoken|read-only file",
        "the store refuses access",
        "Check the credentials in the settings, and the rights on the folder or bucket: the sink reads, writes, lists"
        " and deletes there.",
    ),
    _final(
        r"no_?such_?bucket|\b404 not found\b|\b400 bad request\b|unknown scheme|not a directory|invalid table location",
        "the place of the table cannot be used",
        "Check its address in the settings: the bucket or folder must exist.",
    ),
    _final(
        r"append-only|failed validation check|invariant|constraint|not nullable|schema error|cast error"
        r"|invalid data type|duplicate field",
        "the table cannot take these rows",
        "Change the table, or the values with a query or a transform.",
    ),
    _final(
        r"unsupported|not supported|not implemented",
        "the table needs what this library cannot do",
        "Take the feature off the table, or install a newer version of the library.",
    ),
)


def explained(
    error: Exception,
    system: str,
    *,
    passes: Callable[[Exception], str | None],
    final: Callable[[Exception], str | None],
) -> MillstreamError:
    """The error as one of ours. In: `final`: the message if the error's class is final (waiting does not help), else
    None. `passes`: the message if its class is temporary, else None. A final text takes precedence over both."""
    text = _shown(error)
    if is_full(text):
        return unavailable(f"{system} cannot be written now: {text}")
    known = next((each for each in _FINALS if each.pattern.search(text)), None)
    if known is not None:
        return ConnectorFailed(f"{known.what}: {text}", hint=known.hint)
    refused = final(error)
    if refused is not None:
        return ConnectorFailed(f"{refused}: {text}", hint="Change the table or the settings, then RESTART CONNECTOR.")
    passing = passes(error)
    if passing is not None:
        return unavailable(f"{passing}: {text}")
    return SystemFault(
        f"{system} gives an error that is not known to pass: {text}",
        hint="If it stays for some minutes the task stops: look at the table with another tool, then RESTART"
        " CONNECTOR.",
    )


def _shown(error: Exception) -> str:
    text = one_line(_BACKTRACE.sub("", _ANSI.sub("", str(error)))) or type(error).__name__
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
