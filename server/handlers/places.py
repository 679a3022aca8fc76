"""Gives an error without a span a place in the statement: the property that it names, or the whole statement."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator

from millstream.errors import Span, StatementError

from ...sql.ast import PlacedProperties, Statement

_WORD = re.compile(r"[\w.]+")


@contextlib.contextmanager
def in_its_place(statement: Statement) -> Generator[None]:
    """Errors from this block get a span, if they have none."""
    try:
        yield
    except StatementError as error:
        if error.span is None:
            error.span = _property(error, statement) or statement.span
        raise


def _property(error: StatementError, statement: Statement) -> Span | None:
    """The property of WITH whose name, or else whose value, is in the message."""
    properties = getattr(statement, "properties", None)
    if not isinstance(properties, PlacedProperties):
        return None
    told = set(_WORD.findall(error.message))
    named = [name for name in properties if name in told]
    valued = [name for name, value in properties.items() if isinstance(value, str) and value in told]
    return next((properties.spans[name] for name in [*named, *valued] if name in properties.spans), None)
