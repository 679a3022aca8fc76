"""Removes secrets in texts of statements from everything that is stored, answered or logged.

The text keeps its length, so spans remain correct.
"""

from __future__ import annotations

import re
from typing import Final

from millstream.errors import MillstreamError

from ...executor.connect.connector_plugins import shown_names
from ...executor.connect.connector_secrets import shown_value
from ...executor.connect.secret_statements import secret_spans, without_secret_values
from ...sql.settings.secret_values import hidden_values, replaced

_WORD: Final = re.compile(r"\w+")
_NO_SECRETS: Final = frozenset({"WITH", "with"})
_UNREADABLE: Final = "CREATE SECRET cannot be read"
_CLASS: Final = re.compile(r"connector\.class['\"`]?\s*=\s*'([^']*)'", re.IGNORECASE)


def without_secrets(text: str, connector_class: str | None = None) -> str:
    """Replaces the value of each secret setting of a connector with stars. In: `connector_class`: of the connector that
    the text is about, if the text does not name it.

    >>> without_secrets("CREATE SINK CONNECTOR c WITH ('password'='hunter2', 'topics'='t');")
    "CREATE SINK CONNECTOR c WITH ('password'='*******', 'topics'='t');"
    """
    text = without_secret_values(text)
    return replaced(text, _secrets(text, connector_class))


def say_no_secrets(error: MillstreamError, text: str, *, unread: bool = False) -> None:
    """Removes the secrets of `text` from an error about it. In: `unread`: the text could not be parsed, so the error
    may contain any word of it."""
    if unread and _says_secret(error, text):
        error.message, error.hint = _UNREADABLE, "Write CREATE SECRET name ('key'='value', …);"
    for start, end, _ in _secrets(text):
        value = text[start:end]
        error.message = error.message.replace(value, "*" * len(value))
        error.hint = None if error.hint is None else error.hint.replace(value, "*" * len(value))
    error.args = (error.message,)
    if error.text is not None:
        error.text = without_secrets(error.text)


def _says_secret(error: MillstreamError, text: str) -> bool:
    """Whether the error contains a word of a CREATE SECRET: in an unparsed text, any of them could be the value."""
    said = f"{error.message} {error.hint or ''}"
    words = {word for start, end in secret_spans(text) for word in _WORD.findall(text[start:end])}
    return any(word in said for word in words - _NO_SECRETS)


def _secrets(text: str, connector_class: str | None = None) -> list[tuple[int, int, str]]:
    """The positions of secret values, and their replacements."""
    if not any(kind in text.upper() for kind in ("CONNECTOR", "MIRROR")):
        return []
    classes = {found[1] for found in _CLASS.finditer(text)} | ({connector_class} if connector_class else set())
    shown_by = [shown_names(each) for each in classes]

    def shown(name: str, value: str) -> str:
        found = shown_value(name, value, secret=bool(shown_by) and not any(shows(name) for shows in shown_by))
        return value if found == value else _stars(value, found)

    return list(hidden_values(text, shown))


def _stars(value: str, shown: str) -> str:
    """Stars of the value's length; the parts before and after a hidden part, as in a URL, stay."""
    before, hidden, after = shown.partition("********")
    if not hidden:
        return "*" * len(value)
    return f"{before}{'*' * (len(value) - len(before) - len(after))}{after}"
