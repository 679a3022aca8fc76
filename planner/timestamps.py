"""WITH (TIMESTAMP=…, TIMESTAMP_FORMAT=…): the rowtime computed from a column."""

from __future__ import annotations

from sqlglot import exp

from ..sql.types import BIGINT, STRING
from .expressions import compile_expression
from .schema import Schema
from .scope import Scope
from .typed import Typed


def rowtime_expression(schema: Schema, name: str | None, format_: str | None, scope: Scope) -> Typed | None:
    """BIGINT milliseconds from the column `name`; None where no column was named."""
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
