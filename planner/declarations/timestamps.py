"""WITH (TIMESTAMP=…, TIMESTAMP_FORMAT=…): the rowtime computed from a column."""

from __future__ import annotations

from sqlglot import exp

from ...sql.types import BIGINT, STRING
from ..expressions.compilation import compile_expression
from ..expressions.scope import Scope
from ..expressions.typed import Typed
from ..schema import Schema


def rowtime_expression(schema: Schema, name: str | None, format_: str | None, scope: Scope) -> Typed | None:
    """The rowtime from the column `name`, in BIGINT milliseconds; None if no column was named."""
    if name is None:
        return None
    column = schema.find(name)
    assert column is not None, "the statement that named the column was checked"
    reference = exp.Column(this=exp.Identifier(this=name, quoted=True))
    if column.type == BIGINT:
        return compile_expression(reference, scope)
    if column.type == STRING:
        call = exp.Anonymous(this="STRINGTOTIMESTAMP", expressions=[reference, exp.Literal.string(format_ or "")])
        return compile_expression(call, scope)
    typed = compile_expression(reference, scope)
    return Typed(exp.Anonymous(this="epoch_ms", expressions=[typed.tree]), BIGINT)
