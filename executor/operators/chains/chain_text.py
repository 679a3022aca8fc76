"""Renders a chain of stateless steps as one SELECT, and finds the output columns that are unchanged input columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa

from ....planner.schema import Schema
from ....planner.specs import SqlExpression
from ....planner.steps.explode import Explode
from ....planner.steps.filter import Filter
from ....planner.steps.project import Project
from ....planner.steps.repartition import Rekey
from ...state.equal_keys import has_zeros, one_zero_sql
from ..columns import key_names, value_names

StatelessStep = Filter | Project | Explode | Rekey

ROW = "_row"  # the position of a row in the input
WORD = re.compile(r"\w+")


def kept_where(step: StatelessStep) -> str:
    """The condition of the rows that a step keeps. In: a step that leaves out rows."""
    if isinstance(step, Filter):
        if step.retract_failed:
            return f"_weight < CAST(0 AS TINYINT) OR (({step.predicate.sql}) AND NOT _null)"
        # A stream's row without a value fails every condition; a table's deletion is passed on.
        return f"({step.predicate.sql}) AND NOT (_null AND _weight > CAST(0 AS TINYINT))"
    return " OR ".join(f"{key} IS NOT NULL" for key in key_names(step.schema))


def renamed(steps: Sequence[StatelessStep], schema: pa.Schema) -> dict[str, str] | None:
    """Output column → input column, if the chain only renames and leaves out columns: then no SELECT is needed. Else
    None. GROUP BY of a column of the stream is such a chain."""
    if any(isinstance(step, Filter | Explode) for step in steps):
        return None
    found = column_sources(steps, schema)
    names = {name: source for name, source in found.items() if source is not None}
    return names if len(names) == len(found) else None


def column_sources(steps: Sequence[StatelessStep], schema: pa.Schema) -> dict[str, str | None]:
    """Output column → the input column that it equals in each remaining row; None if the column is computed."""
    names: dict[str, str | None] = {name: name for name in schema.names}
    for step in steps:
        if isinstance(step, Filter):
            continue
        if isinstance(step, Explode):
            values = value_names(step.schema)
            names |= dict.fromkeys(values[len(values) - len(step.arrays) :])
        else:
            names = _chosen_sources(step, names, schema)
    return names


def _chosen_sources(step: Project | Rekey, names: Mapping[str, str | None], schema: pa.Schema) -> dict[str, str | None]:
    chosen = _chosen_columns(step)
    kept = [name for name in names if name[0] == "_" or (name not in chosen and _stays(step, name))]
    following = {name: names[name] for name in kept if not (name == "_st" and isinstance(step, Rekey))}
    for name, expression in chosen.items():
        source = names.get(expression.sql.strip('"'))
        same = source is not None and schema.field(source).type.equals(expression.type.arrow)
        following[name] = source if same and not (has_zeros(expression.type) and isinstance(step, Rekey)) else None
    return following


def _chosen_columns(step: Project | Rekey) -> dict[str, SqlExpression]:
    keys, values = step.key or (), step.values if isinstance(step, Project) else ()
    chosen = {f"k{i}": key for i, key in enumerate(keys)}
    return chosen | {f"v{i}": value for i, value in enumerate(values)}


def leaves_out(step: StatelessStep) -> bool:
    return isinstance(step, Filter) or (isinstance(step, Rekey) and step.drop_null_key)


def chain_statement(
    steps: Sequence[StatelessStep], input_schema: pa.Schema, schema: Schema, wanted: Sequence[str]
) -> tuple[str, set[str]]:
    """The chain as SQL that gives the `wanted` columns, and the columns of the input that it reads."""
    live = [set(wanted)]  # the columns needed after each step, last step first
    for step in reversed(steps):
        live.append(_read_by(step, live[-1]))
    names = [name for name in [*input_schema.names, ROW] if name in live[-1]]
    sql = f"SELECT {', '.join(names)} FROM {{input}}"
    for step, needed in zip(steps, reversed(live[:-1]), strict=True):
        sql, names, schema = rendered(step, sql, names, schema, needed)
    read = live[-1] & set(input_schema.names)
    return f"SELECT {', '.join(wanted)} FROM ({sql})", read


def _read_by(step: StatelessStep, live: set[str]) -> set[str]:
    """The input columns that the step reads. In: `live`: its output columns that are needed."""
    match step:
        case Filter():
            return live | {"_weight", "_null", *_names_in(step.predicate)}
        case Explode():
            return live | {"_null", *_names_in(*step.arrays)}
        case Project() | Rekey():
            chosen = _chosen_columns(step)
            drops = isinstance(step, Rekey) and step.drop_null_key
            asked = [each for name, each in chosen.items() if name in live or (drops and name[0] == "k")]
            return (live - chosen.keys()) | {"_null", *_names_in(*asked)}


def _names_in(*expressions: SqlExpression) -> list[str]:
    """All words of their texts. Words that are no columns do no harm: they are in no schema."""
    return [word for each in expressions for word in WORD.findall(each.sql)]


def _stays(step: Project | Rekey, name: str) -> bool:
    """Whether the step passes on the key or value column of this name unchanged."""
    return name[0] == "v" if isinstance(step, Rekey) else name[0] == "k" and step.key is None


def rendered(
    step: StatelessStep, source: str, names: Sequence[str], schema: Schema, needed: set[str] | None = None
) -> tuple[str, list[str], Schema]:
    """The step as SQL over `source`, which has the columns `names`; its output columns, and their schema. In: `needed`:
    the output columns that are needed; None: all."""
    match step:
        case Filter():
            return f"SELECT * FROM ({source}) WHERE {kept_where(step)}", list(names), schema
        case Project():
            keys = key_names(schema) if step.key is None else key_names(step.schema)
            columns = {name: name for name in names if name.startswith("_")}
            columns |= {name: name for name in keys if name in names} if step.key is None else _typed(keys, step.key)
            columns |= _value_columns(value_names(step.schema), step.values)
            columns = {
                name: sql for name, sql in columns.items() if needed is None or name in needed or name == "_null"
            }
            return _select(columns, source), list(columns), step.schema
        case Explode():
            values = value_names(step.schema)
            exploded = values[len(values) - len(step.arrays) :]
            columns = {name: name for name in names}
            columns |= {name: f"unnest({_cast(array)})" for name, array in zip(exploded, step.arrays, strict=True)}
            return f"{_select(columns, source)} WHERE NOT _null", list(columns), step.schema
        case Rekey():
            keys = _typed(key_names(step.schema), step.key)
            keys |= {f"k{i}": one_zero_sql(keys[f"k{i}"], key.type) for i, key in enumerate(step.key)}
            kept = [name for name in names if name.startswith("_") and name != "_st"]
            columns = {name: name for name in kept} | keys
            columns |= {name: name for name in names if name[0] == "v"}
            kept = {*(columns if needed is None else needed), *(keys if step.drop_null_key else ())}
            columns = {name: sql for name, sql in columns.items() if name in kept}
            sql = _select(columns, source)
            if step.drop_null_key:
                sql = f"SELECT * FROM ({sql}) WHERE {kept_where(step)}"
            return sql, list(columns), step.schema


def _value_columns(names: Sequence[str], expressions: Sequence[SqlExpression]) -> dict[str, str]:
    """In a row without a value, expressions are NULL. A bare column already is."""
    return {
        name: sql if _is_column(expression) else f"CASE WHEN NOT _null THEN {sql} END"
        for name, expression, sql in zip(names, expressions, map(_cast, expressions), strict=True)
    }


def _is_column(expression: SqlExpression) -> bool:
    return expression.sql.strip('"').replace("_", "").isalnum() and not expression.sql[0].isdigit()


def _typed(names: Sequence[str], expressions: Sequence[SqlExpression]) -> dict[str, str]:
    return {name: _cast(expression) for name, expression in zip(names, expressions, strict=True)}


def _cast(expression: SqlExpression) -> str:
    return f"({expression.sql})::{expression.type.duckdb}"


def _select(columns: dict[str, str], source: str) -> str:
    listed = ", ".join(name if sql == name else f"{sql} AS {name}" for name, sql in columns.items())
    return f"SELECT {listed} FROM ({source})"
