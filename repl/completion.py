"""What can be typed next: the words that the grammar allows, and the names that exist on the server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from lark import Token
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from ..planner.declarations.with_properties import PROPERTY_NAMES
from ..planner.formats import FORMATS
from ..sql.expected import all_keywords, expected_keywords
from ..sql.functions.catalog import FUNCTIONS
from ..sql.identifiers import RESERVED, normalise_identifier, quote_identifier
from ..sql.tokens import TOKEN, tokenize
from ..sql.windows import WINDOW_TYPES
from .commands import SHORT, WORDS
from .names import LiveNames, Names
from .settings import ENTRIES
from .settings import FORMATS as OUTPUT_FORMATS
from .splitting import parts
from .text.tables import printable

_WORD: Final = re.compile(r"(?:[`'\"]?[A-Za-z_][A-Za-z0-9_.@]*|[`'\"]|\\[a-z?]*)?$")
_FILE_COMMAND: Final = re.compile(r"\s*(?:\\[ioe]\s+|(?:run\s+script|spool)\s+['\"]?)(?P<path>\S*)", re.IGNORECASE)
_OFTEN_NAMES: Final = frozenset("FIRST ID INPUT LAST STATE SUBJECT".split())
_TYPES: Final = tuple("BOOLEAN INTEGER BIGINT DOUBLE DECIMAL STRING BYTES DATE TIME TIMESTAMP ARRAY MAP STRUCT".split())
_UNITS: Final = tuple("MILLISECONDS SECONDS MINUTES HOURS DAYS".split())
_OPERANDS: Final = frozenset(
    {"NAME", "QUOTED_NAME", "RPAR", "RBRACKET", "STRING_LITERAL", "INTEGER_LITERAL", "DECIMAL_LITERAL"}
)
_SOURCES_AFTER: Final = frozenset({"FROM", "JOIN", "INTO", "DESCRIBE", "OF"})
_QUERIES_AFTER: Final = frozenset({"TERMINATE", "PAUSE", "RESUME", "RESET", "EXPLAIN", "STALL"})
_PROPERTIES_AFTER: Final = frozenset({"SET", "UNSET"})
_FORMAT_PROPERTIES: Final = frozenset({"FORMAT", "KEY_FORMAT", "VALUE_FORMAT"})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text that fits, its kind, and a description of it."""

    text: str
    what: str
    about: str = ""


class StatementCompleter(Completer):
    """Uses the statement up to the cursor, and asks `names` which names exist."""

    def __init__(self, names: LiveNames) -> None:
        self._names = names
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        before = document.text_before_cursor
        file = _FILE_COMMAND.fullmatch(before)
        if file is not None:
            path = file.group("path")
            yield from self._paths.get_completions(Document(path, len(path)), complete_event)
            return
        found = _WORD.search(before)
        word = found.group() if found is not None else ""
        if not word and not complete_event.completion_requested:
            return
        rest, word = _qualified(before[: len(before) - len(word)], word)
        if not complete_event.completion_requested and len(word) < 2 and not word.startswith("\\"):
            return
        candidates = candidates_for(rest, document.text, self._names.get())
        lower = word.islower()  # words typed in lower case are completed in lower case
        for candidate in matching(word, candidates):
            text = _as_typed(candidate) if lower else candidate.text
            yield Completion(text, -len(word), display=printable(text), display_meta=_meta(candidate))


def highlighted_words() -> frozenset[str]:
    """The keywords, types and units, except those that are mostly used as names."""
    return (all_keywords() | {*_TYPES, *_UNITS}) - _OFTEN_NAMES


def candidates_for(before: str, whole: str, names: Names) -> list[Candidate]:
    """The candidates that fit, the likeliest kind first. In: `before`: the text up to the word being typed; `whole`:
    the text including what follows the cursor."""
    if before.endswith("${"):
        return [Candidate(name, "variable") for name in names.variables]
    if _is_in_text(before):
        return []
    statement = _unfinished(before)
    if statement.lstrip().startswith("\\"):
        return _for_backslash(statement.split(), names)
    tokens = tokenize(statement)
    if [_upper(token) for token in tokens] == ["OUTPUT"]:
        return [Candidate(name, "value") for name in OUTPUT_FORMATS]
    if not tokens:
        commands = [*(Candidate(word, "command") for word in WORDS), *_short_commands()]
        return [*_keywords(statement), *commands]
    special = _special(tokens, whole, names)
    if special is not None:
        return special
    keywords = _keywords(statement)
    if tokens[-1].type in _OPERANDS and not _is_keyword_here(tokens[-1]):
        return keywords
    sources = _sources(names, names.columns)
    if _upper(tokens[-1]) in _SOURCES_AFTER:
        return [*sources, *keywords]
    columns = _columns(tokenize(whole), names)
    return [*columns, *_functions(names), *keywords, *sources]


def matching(word: str, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """The candidates that begin with the word, each text once; case and quotes are ignored, except that a word that
    begins with a single quote is no name."""
    seen: set[str] = set()
    start = word.upper().lstrip("`'\"")
    for candidate in map(_as_text, candidates) if word.startswith("'") else candidates:
        if word.startswith("'") and not candidate.text.startswith("'"):
            continue
        if candidate.text.upper().lstrip("`'\"").startswith(start) and candidate.text not in seen:
            seen.add(candidate.text)
            yield candidate


def _as_text(candidate: Candidate) -> Candidate:
    """A topic can be written as a name or as a text."""
    if candidate.what != "topic":
        return candidate
    return Candidate("'" + candidate.text.strip("`") + "'", candidate.what, candidate.about)


# ------------------------------------------------------------------ places that take one kind of candidate


def _special(tokens: Sequence[Token], whole: str, names: Names) -> list[Candidate] | None:
    """The candidates for a place that takes only one kind of them; None for other places."""
    last, first = _upper(tokens[-1]), _upper(tokens[0])
    before = _upper(tokens[-2]) if len(tokens) > 1 else ""
    if last == ".":
        return _of_qualifier(tokens, whole, names)
    if last == "->":
        return [Candidate(quote_identifier(name), "field") for name in names.fields.get(_name(tokens[-2]), ())]
    if last == "PRINT":
        return [Candidate(quote_identifier(name), "topic") for name in names.topics]
    if last == "QUERY" and before == "ALTER":
        return [Candidate(name, "query") for name in names.queries]
    if last in _QUERIES_AFTER and len(tokens) <= 2:
        ids = [Candidate(name, "query") for name in names.queries]
        return [
            *ids,
            *_keywords(" ".join(map(str, tokens)) + " "),
            *([Candidate("ALL", "keyword")] * (last != "EXPLAIN")),
        ]
    if first in _PROPERTIES_AFTER and len(tokens) == 1:
        return [Candidate(f"'{name}'", "property", doc) for name, doc in names.properties.items()]
    if first == "UNDEFINE":
        return [Candidate(name, "variable") for name in names.variables]
    if (before, last) == ("DESCRIBE", "FUNCTION") or (first == "DROP" and last == "FUNCTION"):
        return list(_functions(names))
    if last in ("STREAM", "TABLE") and first in ("DROP", "ALTER", "DESCRIBE"):
        return _sources(names, [name for name in names.columns if (name in names.tables) == (last == "TABLE")])
    if first == "CREATE" and last in ("STREAM", "TABLE", "EXISTS") and len(tokens) < 7:
        return [Candidate("IF NOT EXISTS", "keyword")] if last != "EXISTS" else []
    if last == "=":
        return _values(before, names)
    return _inside_parentheses(tokens, names)


def _inside_parentheses(tokens: Sequence[Token], names: Names) -> list[Candidate] | None:
    opened, depth = _opening(tokens)
    before = _upper(tokens[opened - 1]) if opened > 0 else ""
    last = tokens[-1]
    if before == "WITH" and last.type in ("LPAR", "COMMA"):
        return [Candidate(name, "property") for name in PROPERTY_NAMES]
    if _upper(tokens[0]) == "CREATE" and depth == 1 and before not in ("WITH", "") and opened <= 6:
        if last.type in ("NAME", "QUOTED_NAME") and tokens[-2].type in ("LPAR", "COMMA"):
            own = [Candidate(quote_identifier(name), "type") for name in names.types]
            return [*(Candidate(name, "type") for name in _TYPES), *own]
    if last.type == "INTEGER_LITERAL" and before in (*WINDOW_TYPES, "WITHIN"):
        return [Candidate(unit, "keyword") for unit in _UNITS]
    return None


def _opening(tokens: Sequence[Token]) -> tuple[int, int]:
    """The index of the innermost open parenthesis, and the number of open parentheses."""
    stack = [-1]
    for index, token in enumerate(tokens):
        if token.type in ("LPAR", "LAMBDA_LPAR"):
            stack.append(index)
        elif token.type == "RPAR" and len(stack) > 1:
            stack.pop()
    return stack[-1], len(stack) - 1


def _values(property: str, names: Names) -> list[Candidate]:
    if property in _FORMAT_PROPERTIES:
        return [Candidate(f"'{name}'", "value", rules.doc) for name, rules in FORMATS.items()]
    if property == "KAFKA_TOPIC":
        return [Candidate(f"'{name}'", "value", "topic") for name in names.topics]
    return []


def _of_qualifier(tokens: Sequence[Token], whole: str, names: Names) -> list[Candidate]:
    """The columns of the source before the dot, given by its name or an alias."""
    qualifier = _name(tokens[-2]) if len(tokens) > 1 else ""
    source = _sources_by_name(tokenize(whole), names).get(qualifier)
    return [] if source is None else [_column(*column) for column in names.columns[source].items()]


def _for_backslash(words: Sequence[str], names: Names) -> list[Candidate]:
    """What may follow a command. In: the words of the command so far."""
    match words:
        case ["\\d"]:
            return _sources(names, names.columns)
        case ["\\dt" | "\\ds" as which]:
            return _sources(names, [name for name in names.columns if (name in names.tables) == (which == "\\dt")])
        case ["\\dq"]:
            return [Candidate(name, "query") for name in names.queries]
        case ["\\df"]:
            return list(_functions(names))
        case ["\\x" | "\\timing"]:
            return [Candidate("on", "value"), Candidate("off", "value")]
        case ["\\set"]:
            return [Candidate(name, "setting", entry.doc) for name, entry in ENTRIES.items()]
        case ["\\set", name] if name in ENTRIES:
            return [Candidate(choice, "value") for choice in ENTRIES[name].choices.split(", ")]
        case _:
            return []


# ------------------------------------------------------------------ kinds of candidates


def _short_commands() -> list[Candidate]:
    return [Candidate(text, "command", doc) for text, doc in SHORT.items()]


def _keywords(statement: str) -> list[Candidate]:
    """The keywords that the grammar takes here; if the statement is already wrong, all reserved words."""
    expected = expected_keywords(statement)
    return [Candidate(word, "keyword") for word in sorted(RESERVED if expected is None else expected)]


def _sources(names: Names, wanted: Iterable[str]) -> list[Candidate]:
    return [Candidate(quote_identifier(name), "table" if name in names.tables else "stream") for name in wanted]


def _functions(names: Names) -> Iterator[Candidate]:
    for name, kind in names.functions.items():
        yield Candidate(name, "function", _signature(name) or kind)


@cache
def _signature(name: str) -> str:
    """For Millstream's own functions: the first signature, and the number of other signatures."""
    entry: Any = FUNCTIONS.get(name)
    signatures: Sequence[str] = getattr(entry, "signatures", ())
    more = f"  (+{len(signatures) - 1})" if len(signatures) > 1 else ""
    return f"{signatures[0]}{more}" if signatures else ""


def _columns(tokens: Sequence[Token], names: Names) -> list[Candidate]:
    """The columns of the sources that the statement names, or of all sources if it names none."""
    mentioned = set(_sources_by_name(tokens, names).values())
    found: dict[str, Candidate] = {}
    for source in mentioned or names.columns:
        for column, type_ in names.columns[source].items():
            found.setdefault(column, _column(column, type_))
    return list(found.values())


def _column(name: str, type_: str) -> Candidate:
    return Candidate(quote_identifier(name), "column", type_)


def _sources_by_name(tokens: Sequence[Token], names: Names) -> Mapping[str, str]:
    """The sources of a statement, by their names and aliases."""
    found: dict[str, str] = {}
    for position, token in enumerate(tokens):
        source = _name(token)
        if source not in names.columns:
            continue
        found[source] = source
        after = [other for other in tokens[position + 1 : position + 3] if _upper(other) != "AS"]
        if after and after[0].type in ("NAME", "QUOTED_NAME"):
            found[_name(after[0])] = source
    return found


# ------------------------------------------------------------------ texts and tokens


def _qualified(rest: str, word: str) -> tuple[str, str]:
    """Splits a word such as `u.na` after its last dot."""
    head, dot, tail = word.rpartition(".")
    return (rest + head + dot, tail) if dot and not word.startswith("'") else (rest, word)


def _unfinished(text: str) -> str:
    """The last statement or command, if it is not finished."""
    *_, last = [None, *parts(text)]
    if last is None or (last.ended and not last.is_backslash) or (last.is_backslash and text.rstrip(" ")[-1:] == "\n"):
        return ""
    return last.text + text[len(text.rstrip()) :]


def _is_in_text(before: str) -> bool:
    """Whether the text ends inside of a string, a quoted name or a comment."""
    *_, last = [None, *TOKEN.finditer(before)]
    return last is not None and (last.lastgroup == "UNTERMINATED" or last.group().startswith("--"))


def _upper(token: Token) -> str:
    return str(token).upper()


def _name(token: Token) -> str:
    return normalise_identifier(str(token)) if token.type in ("NAME", "QUOTED_NAME") else ""


def _is_keyword_here(token: Token) -> bool:
    """Whether a name or an expression follows this word, which can also be a name itself."""
    return _upper(token) in {"BY", "OFFSET", "OF", "LINEAGE", "ESCAPE"}


def _as_typed(candidate: Candidate) -> str:
    """The text in lower case, if that does not change its meaning."""
    kind_of_word = candidate.what in ("keyword", "function", "command", "type") or candidate.text.isupper()
    plain = kind_of_word and candidate.what != "value" and "`" not in candidate.text
    return candidate.text.lower() if plain else candidate.text


def _meta(candidate: Candidate) -> str:
    return printable(candidate.about or candidate.what)
