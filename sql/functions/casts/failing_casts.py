"""Texts that are cast to a number where a row has to fail: DuckDB's error names them, and they say why.

DuckDB's own `error` will not do: it counts as volatile, and TRY does not take what is volatile.
"""

from __future__ import annotations

import re
from typing import Final

from sqlglot import exp

NOT_A_NUMBER: Final = "not a number: "  # the text follows
DIVISION_BY_ZERO: Final = "division by zero"  # the divisor follows
NULL_IN_A_LAMBDA: Final = "NULL in a lambda's arithmetic"

_TEXTS: Final = (NOT_A_NUMBER, DIVISION_BY_ZERO, NULL_IN_A_LAMBDA)
_TOLD: Final = re.compile(
    rf"Could not convert string '({NOT_A_NUMBER}.*|{DIVISION_BY_ZERO}|{NULL_IN_A_LAMBDA}).*' to \w+"
)


def cause_of(message: str) -> str:
    """The text, where DuckDB's message is of such a failure; else the message.

    >>> cause_of("Conversion Error: Could not convert string 'division by zero0' to INT32")
    'division by zero'
    """
    told = _TOLD.search(message)
    return message if told is None else told[1]


def only_fails(tree: exp.Expr) -> bool:
    """Whether the expression is there only to make a row fail."""
    match tree:
        case exp.Paren():
            return only_fails(tree.this)
        case exp.Case():
            return all(map(only_fails, results_of(tree)))
        case exp.Cast(this=exp.Literal() | exp.DPipe()):
            text = tree.this if isinstance(tree.this, exp.Literal) else tree.this.left
            return isinstance(text, exp.Literal) and text.is_string and text.this in _TEXTS
        case _:
            return False


def results_of(case: exp.Case) -> list[exp.Expr]:
    """What THEN gives, in order, and ELSE."""
    default = case.args.get("default")
    return [*(branch.args["true"] for branch in case.args["ifs"]), *([] if default is None else [default])]
