"""Finds the rows for which an expression fails, and the reason.

The planner puts an expression that can fail for a row into TRY. TRY turns the failure into NULL without a message, and
costs 18 ns per row even if nothing fails. So a statement first runs `without_try`. If it fails, it runs with TRY, and
then the failed rows are searched for, expression by expression. After a batch with failed rows, the next one is likely
to have some, too: it runs with TRY at once, until a batch has no failed rows.

A statement that fails ends DuckDB's transaction. So statements that may fail run on a separate connection.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

import duckdb
import numpy as np
import pyarrow as pa
from sqlglot import exp

from ....planner.expressions.conditions import conditions_of
from ....planner.expressions.connectives import joined
from ....planner.expressions.readable import column_names, parsed, readable
from ....planner.schema import Column, Schema
from ....planner.specs import SqlExpression, is_volatile
from ....planner.steps.explode import Explode
from ....planner.steps.filter import Filter
from ....planner.steps.project import Project
from ....planner.steps.repartition import Rekey
from ....planner.steps.step import schema_of
from ....sql.functions.casts.failing_casts import cause_of
from ....sql.functions.failures import CallFailure, Failures
from ....sql.functions.udf import shown
from ...state.connection import SideConnections
from ..columns import ints
from ..statement import BatchStatement
from .chain_text import ROW, WORD, StatelessStep, chain_statement, column_sources

ROW_FAILURES: Final = (duckdb.DataError, duckdb.InvalidInputException)
"""The errors that TRY catches. Failed conversions and values out of range are DataErrors."""

_TRY: Final = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\bTRY\(""")
_CAUSE_MAX: Final = 1_000  # characters: DuckDB's messages contain the value
_PRESENT: Final = "NOT _null AND _weight > CAST(0 AS TINYINT)"


def without_try(sql: str) -> str:
    """The text without its TRY calls."""
    return _TRY.sub(lambda found: "(" if found[0] == "TRY(" else found[0], sql)


@dataclass(frozen=True, slots=True)
class Suspect:
    """An expression that can fail for a row. `sql`: without TRY. `what`: the column that it computes, or its purpose.
    `text`: the expression in readable form. `chain`: the steps before it."""

    sql: str
    what: str
    text: str
    chain: Sequence[StatelessStep] = ()


@dataclass(frozen=True, slots=True)
class _Search:
    """`find`: gives the positions of the rows for which the expression fails. `compute`: the expression without TRY."""

    suspect: Suspect
    find: BatchStatement
    compute: BatchStatement


class FailingRows:
    """Searches rows for failures. In: `schema`: of the rows; `names`: the user's names of their columns."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        aside: SideConnections,
        schema: pa.Schema,
        names: Schema,
        suspects: Sequence[Suspect],
    ) -> None:
        self._names = column_names(names)
        self._searches: list[_Search] = []
        inputs = {"input": schema.append(pa.field(ROW, pa.int64()))}
        for suspect in suspects:
            rows = _rows_before(suspect, inputs["input"], names)
            fails = f"TRY(hash({suspect.sql})) IS NULL"  # a NULL has a hash
            find = f"SELECT DISTINCT {ROW} FROM ({rows}) WHERE {_PRESENT} AND {fails}"
            compute = f"SELECT {suspect.sql} AS computed FROM ({rows}) WHERE {_PRESENT}"
            with contextlib.suppress(*ROW_FAILURES):  # an expression that fails in planning is NULL for all rows
                found = BatchStatement(connection, find, inputs)
                self._searches.append(_Search(suspect, found, BatchStatement(aside.first(1)[0], compute, inputs)))

    def note(self, rows: pa.Table, failures: Failures) -> bool:
        """Out: whether any row fails. Adds the reason of each failure to `failures`, in the order of the rows."""
        placed = rows.append_column(ROW, pa.array(np.arange(len(rows), dtype=np.int64)))
        with failures.unchanged():  # functions are called again, and must not report their failures twice
            found = [ints(search.find.run(input=placed), ROW) for search in self._searches]
            failed = sorted((place, number) for number, places in enumerate(found) for place in places.tolist())
            explained = failed[: failures.room]
            why = [self._failure(self._searches[number], placed.slice(place, 1)) for place, number in explained]
        for failure in why:
            failures.add(failure)
        failures.add_unexplained(len(failed) - len(explained))
        return bool(failed)

    def _failure(self, search: _Search, row: pa.Table) -> CallFailure:
        message = f"Error computing {search.suspect.what}: {_cause(search.compute, row)}, in {search.suspect.text}"
        (values,) = row.to_pylist()
        named = [(self._names[name], value) for name, value in values.items() if name[0] in "kv"]
        record = ", ".join(f"{name!r}: {shown(value)}" for name, value in named)
        return CallFailure(message, f"{{{record}}}", sequence=values["_seq"])


def _cause(compute: BatchStatement, row: pa.Table) -> str:
    try:
        compute.run(input=row)
    except duckdb.Error as error:
        return cause_of(str(error).split("\n\nLINE ", 1)[0])[:_CAUSE_MAX]
    return "it has no value"


def _rows_before(suspect: Suspect, schema: pa.Schema, names: Schema) -> str:
    """SQL for the rows over which the expression is computed, with the columns that it reads."""
    given = column_sources(suspect.chain, schema)
    words = dict.fromkeys([ROW, "_null", "_weight", *WORD.findall(suspect.sql)])
    return chain_statement(suspect.chain, schema, names, [word for word in words if word in given])[0]


def failing_rows(
    connection: duckdb.DuckDBPyConnection,
    aside: SideConnections,
    steps: Sequence[StatelessStep],
    names: Schema,
    schema: pa.Schema,
) -> FailingRows:
    """The search for failing rows of a chain over rows of this `schema`."""
    suspects: list[Suspect] = []
    for number, step in enumerate(steps):
        given = schema_of(steps[number - 1]) if number else names
        found = suspected(_named(step), given)
        if isinstance(step, Filter):
            found = [replace(each, sql=_asked_in_turn(each.sql)) for each in found]
        suspects += [replace(each, chain=steps[:number]) for each in found]
    return FailingRows(connection, aside, schema, names, suspects)


def suspected(expressions: Iterable[tuple[str, SqlExpression]], schema: Schema) -> list[Suspect]:
    """The expressions that can fail. In: each expression with its purpose; `schema`: of the rows that they read."""
    names = column_names(schema)
    bare = [(what, without_try(each.sql), each.sql) for what, each in expressions]
    return [
        Suspect(sql, what, readable(guarded, lambda name: names.get(name, name)))
        for what, sql, guarded in bare
        if sql != guarded and not is_volatile(sql)  # computed once more, it may not fail
    ]


def _named(step: StatelessStep) -> Iterator[tuple[str, SqlExpression]]:
    match step:
        case Filter():
            yield "the condition of a filter", step.predicate
        case Project():
            yield from zip(_columns(step.schema.value), step.values, strict=True)
            yield from zip(_columns(step.schema.key), step.key or (), strict=False)
        case Rekey():
            yield from zip(_columns(step.schema.key), step.key, strict=True)
        case Explode():
            yield from zip(_columns(step.schema.value[-len(step.arrays) :]), step.arrays, strict=True)


def _columns(columns: Sequence[Column]) -> list[str]:
    return [f"column {column.name}" for column in columns]


def _asked_in_turn(predicate: str) -> str:
    """The predicate, evaluated condition by condition: a condition after one that is not true is not evaluated, so it
    cannot fail."""
    tree = parsed(predicate)
    conditions = [] if tree is None else list(conditions_of(cast("exp.Expression", tree)))
    if len(conditions) < 2:
        return predicate
    return joined(exp.And, conditions, [True] * len(conditions)).sql(dialect="duckdb")
