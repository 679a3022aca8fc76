"""SQLAlchemy's expressions as Millstream's SQL, where the two differ."""

from __future__ import annotations

from typing import Any

from sqlalchemy import cast, types
from sqlalchemy.sql import compiler, elements


class MillstreamQueries(compiler.SQLCompiler):
    """SELECT and its expressions."""

    def limit_clause(self, select: Any, **kw: Any) -> str:
        """OFFSET stands alone: there is no number for a LIMIT without an end."""
        limit, offset = select._limit_clause, select._offset_clause
        text = "" if limit is None else f"\n LIMIT {self.process(limit, **kw)}"
        return text if offset is None else f"{text}\n OFFSET {self.process(offset, **kw)}"

    def visit_is__binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return self._compared(binary, "IS", "IS NOT DISTINCT FROM", **kw)

    def visit_is_not_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return self._compared(binary, "IS NOT", "IS DISTINCT FROM", **kw)

    def visit_truediv_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """A whole number is divided as a DOUBLE: a DECIMAL would need its digits."""
        by = binary.right
        if not isinstance(by.type, types.Numeric):
            by = cast(by, types.Double())
        return f"{self.process(binary.left, **kw)} / {self.process(by, **kw)}"

    def _compared(self, binary: Any, with_null: str, with_truth: str, **kw: Any) -> str:
        """IS is only about NULL here."""
        is_truth = isinstance(binary.right, elements.True_ | elements.False_)
        operator = with_truth if is_truth else with_null
        return f"{self.process(binary.left, **kw)} {operator} {self.process(binary.right, **kw)}"


class NestedValues(types.JSON):
    """ARRAY, MAP and STRUCT: lists and dicts on both sides, without JSON's text."""

    cache_ok = True

    def bind_processor(self, dialect: Any) -> None:
        return None

    def result_processor(self, dialect: Any, coltype: Any) -> None:
        return None
