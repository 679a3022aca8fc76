"""Finds values that are secret because of the name that they are assigned to, as in `'password'='x'`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

HIDDEN: Final = "********"
REFERENCE: Final = re.compile(r"\$\{(file|env|secret|sealed):([^}]*)\}")
"""A reference to a secret that is stored elsewhere, or an encrypted secret."""
_SECRET_NAME: Final = re.compile(
    r"pass?w(?:or)?[dt]|passphrase|pwd|secret|token|credential|private[._-]?key|api[._-]?key|access[._-]?key|jaas"
    r"|authorization|headers?$|keystore\.key$|user[._-]?info$",
    re.IGNORECASE,
)
_PLACES: Final = (".file", ".source")  # such a setting says where a secret is, not what it is
_ASSIGNED: Final = re.compile(r"(?:(?P<quote>['\"`])(?P<name>[\w.-]+)(?P=quote)\s*=?|\b(?P<bare>\w+)\s*=)\s*'")
"""The text before a value, also if the user forgot the `=`."""
_END: Final = re.compile(r"'(?=\s*(?:,\s*(?:['\"`][\w.-]+['\"`]\s*=?|\w+\s*=)|\)|;|$))")
"""The end of a secret, which may contain a quote that should have been doubled."""
_LITERAL_END: Final = re.compile(r"[^']*(?:''[^']*)*'")
_MAY_HOLD: Final = re.compile(r"\b(?:CONNECTOR|MIRROR|SET|DEFINE|SYSTEM)\b", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether settings of this name contain a secret in any context. Some misspelled names are included.

    >>> [is_secret_name(name) for name in ("database.password", "pasword", "topics")]
    [True, True, False]
    """
    return _SECRET_NAME.search(name) is not None


def shown_setting(name: str, value: str) -> str:
    """A setting's value as users may see it.

    >>> [shown_setting(name, "x") for name in ("ssl.key.password", "millstream.secrets.key.file", "topics")]
    ['********', 'x', 'x']
    """
    return HIDDEN if value and is_secret_name(name) and not name.endswith(_PLACES) else value


def hidden_values(text: str, shown: Callable[[str, str], str]) -> Iterator[tuple[int, int, str]]:
    """Start and end of each assigned value for which `shown(name, value)` returns a different text, and that text."""
    position = 0
    while (assigned := _ASSIGNED.search(text, position)) is not None:
        start = assigned.end()
        ending = _END.search(text, start)
        end = len(text) if ending is None else ending.start()
        value = text[start:end]
        instead = shown(assigned["name"] or assigned["bare"], value)
        if instead != value:
            yield start, end, instead
            position = end + 1
        else:
            literal = _LITERAL_END.match(text, start)
            position = len(text) if literal is None else literal.end()


def replaced(text: str, spans: Iterable[tuple[int, int, str]]) -> str:
    """Replaces parts of a text. In: `spans`: start, end and replacement, in order, without overlaps.

    >>> replaced("abcd", [(1, 2, "-"), (3, 4, "+")])
    'a-c+'
    """
    pieces: list[str] = []
    position = 0
    for start, end, instead in spans:
        pieces += [text[position:start], instead]
        position = end
    return "".join([*pieces, text[position:]])


def without_assigned_secrets(text: str) -> str:
    """Statements without values that are secret by their names: in connectors' settings, SET and DEFINE.

    >>> without_assigned_secrets("CREATE SINK CONNECTOR c WITH ('password'='hunter2', 'topics'='t');")
    "CREATE SINK CONNECTOR c WITH ('password'='********', 'topics'='t');"
    >>> without_assigned_secrets("ALTER CONNECTOR c WITH ('password'='${secret:pg}');")
    "ALTER CONNECTOR c WITH ('password'='${secret:pg}');"
    >>> without_assigned_secrets("SELECT * FROM t WHERE token = 'a';")
    "SELECT * FROM t WHERE token = 'a';"
    """
    if _MAY_HOLD.search(text) is None:
        return text
    return replaced(text, hidden_values(text, _shown))


def _shown(name: str, value: str) -> str:
    return HIDDEN if is_secret_name(name) and not REFERENCE.fullmatch(value) else value
