"""Calls whose results can be far larger than a record, and how they are computed instead.

DuckDB computes whatever it is asked for: LPAD to 2 GB for each of 2,048 rows, or a text doubled thirty times. A call
that copies columns a few times at most is left to DuckDB, because a record is small. Other calls are replaced by a
Python function, which first adds up the size of its results (`bounds.count_bytes`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sqlglot import exp

from .bounds import count_bytes
from .function import BoundCall
from .template import fill
from .udf import PythonFunction, by_row, by_typed_row

COPIES_MAX = 16
_COPIES = "copies"
_VARIABLE = re.compile(r"l\d+")
_PADDED_MAX = 10_000
_NEEDLE_MAX = 1_000
_REPLACED_MAX = 16


def is_few(tree: exp.Expression, operands: Sequence[exp.Expression]) -> bool:
    """Whether `tree`, made of the operands, has so few copies of columns that DuckDB may make it. Variables of lambdas
    may hold anything: REDUCE can double its state with each item."""
    count = sum(map(_copies, operands))
    tree.meta[_COPIES] = count
    return count <= COPIES_MAX


def _copies(tree: exp.Expression) -> int:
    inner = tree.unnest()
    if isinstance(inner, exp.Literal):
        return 0
    if _COPIES in inner.meta:
        return inner.meta[_COPIES]
    if isinstance(inner, exp.Column):
        return 1
    total = 0
    stack = [inner]
    while stack and total <= COPIES_MAX:
        node = stack.pop()
        if _COPIES in node.meta:
            total += node.meta[_COPIES]
        elif isinstance(node, exp.Column):
            total += 1
        elif isinstance(node, exp.Identifier):
            total += COPIES_MAX + 1 if _is_variable(node) else 0
        else:
            stack += [child for child in node.iter_expressions() if isinstance(child, exp.Expression)]
    return total


def _is_variable(node: exp.Identifier) -> bool:
    """Whether it is a lambda's, as `planner.scope` names them."""
    return not node.args.get("quoted") and _VARIABLE.fullmatch(node.name) is not None


# ------------------------------------------------------------------ texts


def few_joined(call: BoundCall, arguments: list[exp.Expression]) -> exp.Expression | None:
    """concat(…) and concat_ws(…), where DuckDB may compute it."""
    if not arguments:
        return exp.Literal.string("")
    tree = exp.Anonymous(this=call.function.name.lower(), expressions=[argument.copy() for argument in arguments])
    return tree if is_few(tree, arguments) else None


def concat_texts(*texts: str | None) -> str:
    return _join("", texts)


def join_texts(separator: str | None, *texts: str | None) -> str | None:
    return None if separator is None else _join(separator, texts)


def join_list(texts: list[str] | None, delimiter: str | None) -> str | None:
    return None if texts is None else _join(delimiter or "", texts)


def pipe_texts(left: str, right: str) -> str:
    return _join("", (left, right))


def _join(separator: str, texts: Sequence[str | None]) -> str:
    present = [text for text in texts if text is not None]
    count_bytes(sum(map(_size, present)) + _size(separator) * max(0, len(present) - 1))
    return separator.join(present)


def _size(text: str) -> int:
    """At least its bytes in UTF-8, and those that Python needs."""
    return len(text) if text.isascii() else 4 * len(text)


CONCAT_TEXTS = by_row(concat_texts, nulls=True)
JOIN_TEXTS = by_row(join_texts, nulls=True)
JOIN_LIST = by_row(join_list, nulls=True)
PIPE_TEXTS = by_row(pipe_texts)


def small_padding(call: BoundCall, arguments: list[exp.Expression]) -> exp.Expression | None:
    """lpad(…) and rpad(…) to a length that is written, and not large."""
    text, length, padding = arguments
    if not (isinstance(length, exp.Literal) and not length.is_string and int(length.this) <= _PADDED_MAX):
        return None
    template = (
        f"CASE WHEN :length >= 0 AND :padding <> '' THEN {call.function.name.lower()}(:text, :length, :padding) END"
    )
    return fill(template, {"text": text, "length": length, "padding": padding})


def _padding(name: str, *, left: bool) -> PythonFunction:
    def pad(text: str, length: int, padding: str) -> str | None:
        if length < 0 or not padding:
            return None
        if len(text) >= length:
            return text[:length]
        missing = length - len(text)
        count_bytes(_size(text) + missing * (1 if padding.isascii() else 4))
        filled = (padding * (missing // len(padding) + 1))[:missing]
        return filled + text if left else text + filled

    pad.__name__ = name
    return by_row(pad)


LPAD_TEXT = _padding("lpad_text", left=True)
RPAD_TEXT = _padding("rpad_text", left=False)


def small_replacement(_call: BoundCall, arguments: list[exp.Expression]) -> exp.Expression | None:
    """replace(…) of a written text by one that is about as short."""
    _, old, new = arguments
    written = all(isinstance(part, exp.Literal) and part.is_string for part in (old, new))
    if written and 0 < len(old.this) <= _NEEDLE_MAX and len(new.this) <= max(len(old.this), _REPLACED_MAX):
        return exp.Anonymous(this="replace", expressions=[argument.copy() for argument in arguments])
    return None


@by_row
def replace_text(text: str, old: str, new: str) -> str:
    found = text.count(old) if len(new) > len(old) else 0
    count_bytes(_size(text) + found * _size(new))
    return text.replace(old, new)


# ------------------------------------------------------------------ arrays


def few_lists(_call: BoundCall, arguments: list[exp.Expression]) -> exp.Expression | None:
    """list_concat(…), where DuckDB may compute it."""
    left, right = arguments
    tree = fill(
        "CASE WHEN :left IS NOT NULL OR :right IS NOT NULL THEN list_concat(:left, :right) END",
        {"left": left, "right": right},
    )
    return tree if is_few(tree, arguments) else None


def array_concat(_parameters: object, _returns: object) -> Callable[..., list[object] | None]:
    def both(left: list[object] | None, right: list[object] | None) -> list[object] | None:
        if left is None and right is None:
            return None
        count_bytes(8 * (len(left or ()) + len(right or ())))
        return [*(left or ()), *(right or ())]

    return both


ARRAY_CONCAT = by_typed_row(array_concat, nulls=True)
