"""Functions about regular expressions, which are Java's."""

from __future__ import annotations

from functools import partial

from .function import Function, scalar
from .java.java_regex import compile_pattern, replacement
from .matching import Pattern
from .udf import by_row

regex_function = partial(scalar, category="REGULAR EXPRESSION")


@by_row
def regex_extract(pattern: str, text: str, group: int = 0) -> str | None:
    compiled = compile_pattern(pattern)
    match = compiled.search(text) if group <= compiled.groups else None
    return None if match is None else match[group]


@by_row
def regex_extract_all(pattern: str, text: str, group: int = 0) -> list[str | None] | None:
    compiled = compile_pattern(pattern)
    return None if group > compiled.groups else [match[group] for match in compiled.finditer(text)]


@by_row
def regex_replace(text: str, pattern: str, new: str) -> str:
    compiled = compile_pattern(pattern)
    if compiled.search(text) is None:
        return text  # Java reads the replacement when it replaces: here even a broken one does no harm
    return compiled.sub(replacement(pattern, new), text)


@by_row
def regex_split(text: str, pattern: str) -> list[str]:
    compiled = compile_pattern(pattern)
    if compiled.matches_nothing:
        return _split_by_empty(compiled, text)
    parts: list[str] = []
    at = 0
    for match in compiled.finditer(text):
        parts.append(text[at : match.start()])
        at = match.end()
    return [*parts, text[at:]]


def _split_by_empty(pattern: Pattern, text: str) -> list[str]:
    """By a pattern that matches the empty text: no empty part at the start, and none at the end."""
    parts: list[str] = []
    at = 0
    for match in pattern.finditer(text):
        if match.end() > 0:
            parts.append(text[at : match.start()])
            at = match.end()
    if at == 0:
        return [text]
    parts.append(text[at:])
    while parts and not parts[-1]:
        parts.pop()
    return parts


FUNCTIONS: tuple[Function, ...] = (
    regex_function(
        "regexp_extract",
        signatures=[
            "(pattern STRING, text STRING) -> STRING",
            "(pattern STRING, text STRING, group INTEGER) -> STRING",
        ],
        doc="The first match of the pattern, or a group of it; NULL where it does not match.",
        python=regex_extract,
        examples={
            "REGEXP_EXTRACT('(.*) (.*)', 'hello there', 2)": "'there'",
            "REGEXP_EXTRACT('x', 'hello')": "NULL",
            "REGEXP_EXTRACT(NULL, 'hello')": "NULL",
        },
    ),
    regex_function(
        "regexp_extract_all",
        signatures=[
            "(pattern STRING, text STRING) -> ARRAY<STRING>",
            "(pattern STRING, text STRING, group INTEGER) -> ARRAY<STRING>",
        ],
        doc="All matches of the pattern, or a group of each.",
        python=regex_extract_all,
        examples={
            "REGEXP_EXTRACT_ALL('(\\w+) (\\w+)', 'hello there nice day', 2)": "ARRAY['there', 'day']",
            "REGEXP_EXTRACT_ALL(NULL, 'hello')": "NULL",
        },
    ),
    regex_function(
        "regexp_replace",
        signature="(text STRING, pattern STRING, new STRING) -> STRING",
        doc="The text with every match of the pattern replaced; `$1` in `new` is the match's first group.",
        python=regex_replace,
        examples={
            "REGEXP_REPLACE('xabbx', 'a.b+', 'bar')": "'xbarx'",
            "REGEXP_REPLACE('k=v', '(k)=(v)', '$2=$1')": "'v=k'",
            "REGEXP_REPLACE('abc', 'b', '$1')": "NULL",
            "REGEXP_REPLACE('abc', 'x', '$1')": "'abc'",
            "REGEXP_REPLACE(NULL, 'a', 'b')": "NULL",
        },
    ),
    regex_function(
        "regexp_split_to_array",
        signature="(text STRING, pattern STRING) -> ARRAY<STRING>",
        doc="The parts between matches of the pattern; every character for an empty pattern.",
        python=regex_split,
        examples={
            "REGEXP_SPLIT_TO_ARRAY('a1b22c', '[0-9]+')": "ARRAY['a', 'b', 'c']",
            "REGEXP_SPLIT_TO_ARRAY('abc', '')": "ARRAY['a', 'b', 'c']",
            "REGEXP_SPLIT_TO_ARRAY('abc', NULL)": "NULL",
        },
    ),
)
