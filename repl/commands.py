"""The shell's own commands, which are no SQL: one entry each. `help` and completion read this list."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Verb = Literal["help", "exit", "clear", "version", "server", "output", "run script"]


@dataclass(frozen=True, slots=True)
class Command:
    """`argument` is None where nothing was said."""

    verb: Verb
    argument: str | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    verb: Verb
    usage: str
    doc: str
    pattern: re.Pattern[str]


def _entry(verb: Verb, usage: str, doc: str, pattern: str) -> _Entry:
    return _Entry(verb, usage, doc, re.compile(rf"\s*(?:{pattern})\s*;?\s*", re.IGNORECASE))


_ENTRIES: Final = (
    _entry("help", "help", "Show this.", r"help"),
    _entry("output", "output [tabular|json]", "Say or choose how results look.", r"output(?:\s+(?P<argument>\S+?))?"),
    _entry(
        "run script",
        "run script 'FILE'",
        "Run the statements of a file.",
        r"run\s+script\s+(?P<quote>['\"])(?P<argument>.+)(?P=quote)",
    ),
    _entry("server", "server [URL]", "Say which server this is, or go to another one.",
           r"server(?:\s+['\"]?(?P<argument>[^\s'\";]+)['\"]?)?"),
    _entry("version", "version", "Say which versions this shell and the server are.", r"version"),
    _entry("clear", "clear", "Clear the screen.", r"clear"),
    _entry("exit", "exit, quit, Ctrl-D", "Leave.", r"exit|quit"),
)  # fmt: skip

WORDS: Final = ("clear", "exit", "help", "output", "quit", "run script", "server", "version")


def command_of(text: str) -> Command | None:
    """The command that the text is; None for SQL.

    >>> command_of("OUTPUT json;"), command_of("show streams;")
    (Command(verb='output', argument='json'), None)
    """
    for entry in _ENTRIES:
        found = entry.pattern.fullmatch(text)
        if found is not None:
            return Command(entry.verb, found.groupdict().get("argument"))
    return None


def help_text() -> str:
    width = max(len(entry.usage) for entry in _ENTRIES)
    commands = "\n".join(f"  {entry.usage:<{width}}  {entry.doc}" for entry in _ENTRIES)
    return (
        f"Statements are SQL and end with `;`. Ctrl-C ends a query that goes on, Ctrl-D leaves.\n\n{commands}\n\n"
        "SHOW STREAMS; SHOW TABLES; SHOW TOPICS; SHOW QUERIES; SHOW FUNCTIONS; DESCRIBE name; EXPLAIN SELECT …;"
    )
