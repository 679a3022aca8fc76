"""The shell's own commands, which are not SQL: one entry for each. `help` and completion read this list."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import Final, Literal

from millstream.errors import ServerError, did_you_mean

Verb = Literal[
    "help", "exit", "clear", "version", "server", "output", "run script", "spool", "history", "set cli",
    "request pipelining",
    "describe", "tables", "streams", "queries", "functions", "redirect", "expanded", "timing", "watch", "edit", "set",
    "run", "run expanded",
]  # fmt: skip


class UnknownCommand(ServerError):
    """The word after a backslash is not a command."""

    code = "UNKNOWN_COMMAND"


@dataclass(frozen=True, slots=True)
class Command:
    """`argument` is None if there is none."""

    verb: Verb
    argument: str | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    verb: Verb
    usage: str
    doc: str
    short: str = ""  # the word after the backslash; the argument is the rest of the line
    pattern: re.Pattern[str] | None = None  # the words as in ksqlDB's shell, up to the `;`


def _entry(verb: Verb, usage: str, doc: str, *, short: str = "", words: str = "") -> _Entry:
    pattern = re.compile(rf"\s*(?:{words})\s*;?\s*", re.IGNORECASE) if words else None
    return _Entry(verb, usage, doc, short, pattern)


_FILE: Final = r"(?:(?P<quote>['\"])(?P<argument>.+)(?P=quote)|(?P<bare>[^\s'\"]+?))"

_ENTRIES: Final = (
    _entry("help", "help, \\?", "Show this.", short="?", words=r"help"),
    _entry("describe", "\\d [NAME]", "List streams and tables, or describe one of them.", short="d"),
    _entry("streams", "\\ds [PATTERN]", "List streams; in a pattern * and ? stand for letters.", short="ds"),
    _entry("tables", "\\dt [PATTERN]", "List tables.", short="dt"),
    _entry("queries", "\\dq [ID]", "List queries, or explain one of them.", short="dq"),
    _entry("functions", "\\df [PATTERN]", "List functions, or describe one of them.", short="df"),
    _entry("output", "output [FORMAT]", "Say or choose how results look: table, json, jsonl, csv, arrow, …",
           words=r"output(?:\s+(?P<argument>\S+?))?"),
    _entry("expanded", "\\x [on|off]", "Show a line per column.", short="x"),
    _entry("run expanded", "\\gx", "Run the statement before it, or the last one, with a line per column.", short="gx"),
    _entry("run", "\\g", "Run the statement before it, or the last one again.", short="g"),
    _entry("watch", "\\watch [SECONDS [TIMES]]", "Run it every 2 seconds, until Ctrl-C.", short="watch"),
    _entry("timing", "\\timing [on|off]", "Say how long each statement takes.", short="timing"),
    _entry("edit", "\\e [FILE]", "Write the last statement, or a file, in $EDITOR.", short="e"),
    _entry("run script", "run script 'FILE', \\i FILE", "Run the statements of a file.", short="i",
           words=rf"run\s+script\s+{_FILE}"),
    _entry("redirect", "\\o [FILE]", "Write results to a file, or to the screen again.", short="o"),
    _entry("spool", "spool 'FILE', spool off", "Write all output to a file, too.", words=rf"spool\s+{_FILE}"),
    _entry("history", "history [N], \\s [N]", "Show what was typed.", short="s",
           words=r"history(?:\s+(?P<argument>\d+))?"),
    _entry("set", "\\set [NAME [VALUE]]", "Show the shell's settings, or change one.", short="set"),
    _entry("set cli", "set cli wrap on|off, set cli column-width N", "As \\set cut off|on, \\set width N.",
           words=r"set\s+cli\s+(?P<argument>\S+\s+\S+?)"),
    _entry("server", "server [URL], \\c [URL]", "Say which server this is, or go to another one.", short="c",
           words=r"server(?:\s+['\"]?(?P<argument>[^\s'\";]+)['\"]?)?"),
    _entry(
        "request pipelining",
        "request_pipelining on|off",
        "Nothing: each statement waits for the one before it.",
        words=r"request_pipelining(?:\s+(?P<argument>on|off))?",
    ),
    _entry("version", "version", "Say which versions this shell and the server are.", words=r"version"),
    _entry("clear", "clear", "Clear the screen.", words=r"clear"),
    _entry("exit", "exit, quit, \\q, Ctrl-D", "Leave.", short="q", words=r"exit|quit"),
)  # fmt: skip

_BY_SHORT: Final = {entry.short: entry for entry in _ENTRIES if entry.short}
WORDS: Final = ("clear", "exit", "help", "history", "output", "quit", "run script", "server", "spool", "version")
SHORT: Final = {f"\\{short}": entry.doc for short, entry in sorted(_BY_SHORT.items())}
TAKES_STATEMENT: Final[frozenset[Verb]] = frozenset({"run", "run expanded", "watch", "edit"})


def command_of(text: str) -> Command | None:
    """The command in the text, or None if the text is SQL. Raises `UnknownCommand`.

    >>> command_of("OUTPUT json;"), command_of("\\\\dt my*"), command_of("show streams;")
    (Command(verb='output', argument='json'), Command(verb='tables', argument='my*'), None)
    """
    if text.lstrip().startswith("\\"):
        return _short_command(text.strip())
    for entry in _ENTRIES:
        found = entry.pattern.fullmatch(text) if entry.pattern is not None else None
        if found is not None:
            groups = found.groupdict()
            return Command(entry.verb, groups.get("argument") or groups.get("bare"))
    return None


def _short_command(text: str) -> Command:
    word, _, rest = text[1:].partition(" ")
    word = word.rstrip(";")
    entry = _BY_SHORT.get(word)
    if entry is None:
        hint = did_you_mean(f"\\{word}", SHORT) or "\\? lists the commands."
        raise UnknownCommand(f"there is no command \\{word}", hint=hint)
    argument = rest.strip().rstrip(";").rstrip()
    quotes = "'" if entry.verb in ("describe", "queries") else "'\""  # double quotes mean exact letters: they stay
    if len(argument) > 1 and argument[0] == argument[-1] and argument[0] in quotes:
        argument = argument[1:-1]
    return Command(entry.verb, argument or None)


def help_text(width_max: int | None = None) -> str:
    """In: `width_max`: the width of the screen, or None if there is no screen."""
    width = max(len(entry.usage) for entry in _ENTRIES)
    lines: list[str] = []
    for entry in _ENTRIES:
        first, *others = textwrap.wrap(entry.doc, max(20, (width_max or 120) - width - 4))
        lines += [f"  {entry.usage:<{width}}  {first}", *(" " * (width + 4) + other for other in others)]
    before = (
        "Statements are SQL and end with `;`. Tab completes, Ctrl-R searches what was typed, Ctrl-C ends a query that "
        "goes on, Ctrl-D leaves."
    )
    after = (
        "SHOW STREAMS; SHOW TABLES; SHOW TOPICS; SHOW QUERIES; SHOW FUNCTIONS; DESCRIBE name; EXPLAIN SELECT …; "
        "DEFINE name = 'value'; makes a variable, which statements write as ${name}; UNDEFINE name; forgets it."
    )
    texts = ["\n".join(textwrap.wrap(text, width_max or 120)) for text in (before, after)]
    return "\n\n".join([texts[0], "\n".join(lines), texts[1]])
