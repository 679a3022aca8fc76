"""The base of the physical plan's steps: the methods that others call on a step, with defaults that fit most steps.

Steps form a tree, sources at the leaves. A step answers for itself, so code that walks a plan needs no list of steps.

Most defaults are those of a step without state. A step whose operator has stores answers in addition:

| method                      | what goes wrong with the default                                                    |
| --------------------------- | ----------------------------------------------------------------------------------- |
| `stateful`                  | the query has no changelog: a restart loses the state                               |
| `state_identity`            | CREATE OR REPLACE is refused if any field of the step differs                       |
| `kept_keys`, `kept_values`  | … or if keys of its inputs differ; it is accepted whatever stored values come from  |
| `asks_stream_time`          | its operator gets no stream time; needed if rows or windows expire                  |
| `task_count`, `rekeys`      | if it gives its rows new keys, equal keys are in different tasks                    |
| `final`                     | it counts as emitting each change                                                   |
| `stall`                     | EXPLAIN STALL only says that no row passed                                          |

Its nodes of the logical plan have to say which columns they read (`columns_read`) and whether they need the old rows of
a table (`wants_old_rows`). The stores' names begin with the step's id (`store_id`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Self

from ..expressions.readable import column_names, readable, with_names
from ..insight.lineage_rows import LineageRows
from ..insight.stall import Cause, OperatorSeen, counted
from ..schema import Schema
from ..specs import KeyWindow, Kind, SqlExpression, WindowSpec

_PSEUDO = re.compile(r"\b_(?!null\b|weight\b)\w")
Text = Callable[[str], str]
"""How to print an expression: as generated, or with the column names of SQL."""


@dataclass(frozen=True, slots=True)
class Step:
    """Base of all steps; `id` is unique in the plan and names the step's stores."""

    id: str

    # ------------------------------------------------------------------ the tree

    @property
    def inputs(self) -> tuple[Step, ...]:
        """The steps that it reads, left to right."""
        return tuple(getattr(self, name) for name in _input_fields(type(self)))

    def with_inputs(self, *inputs: Step) -> Self:
        """The step with other inputs, as many as it has."""
        return replace(self, **dict(zip(_input_fields(type(self)), inputs, strict=True)))

    # ------------------------------------------------------------------ rows

    @property
    def expressions(self) -> tuple[SqlExpression, ...]:
        """All generated SQL in it."""
        return ()

    @property
    def function_names(self) -> tuple[str, ...]:
        """The catalog names of functions that it calls itself, in addition to those in its expressions."""
        return ()

    @property
    def gives(self) -> Kind:
        """Whether its rows are rows of a stream or changes of a table."""
        return self.inputs[0].gives

    @property
    def window_of_keys(self) -> KeyWindow | None:
        """The window in its keys; by default that of its first input."""
        return self.inputs[0].window_of_keys

    def result_column(self, index: int) -> str:
        """The physical name under which a client reads the value column. A key column stays readable in deletions."""
        return f"v{index}"

    # ------------------------------------------------------------------ tasks, state and time

    @property
    def task_count(self) -> int:
        """The number of different `_part` values in its output."""
        return max(child.task_count for child in self.inputs)

    @property
    def rekeys(self) -> bool:
        """Whether its rows move to other tasks."""
        return False

    @property
    def stateless(self) -> bool:
        """Whether its result for a row depends only on that row."""
        return False

    @property
    def stateful(self) -> bool:
        """Whether it keeps rows in stores."""
        return False

    @property
    def keeps_rows_read(self) -> bool:
        """Whether it stores the rows of its inputs, with the columns that the query reads."""
        return False

    @property
    def new_key(self) -> tuple[SqlExpression, ...] | None:
        """The new key that its rows get without moving; None if they keep their key."""
        return None

    @property
    def passes_columns(self) -> bool:
        """Whether its rows have the key of its input, and the input's value columns at the same positions."""
        return False

    def nets_batches(self, every_change: bool) -> bool:
        """Whether the changes of a whole batch are emitted under one `_seq`: first all -1 rows, then all +1 rows."""
        return False

    @property
    def state_identity(self) -> Step | None:
        """What must be equal in the new plan when a query is replaced and keeps its state; None without state."""
        return self.without_inputs() if self.stateful else None

    def kept_keys(self, *below: LineageRows) -> tuple[str, ...]:
        """The expressions, over the sources' columns, by which it stores rows. In: the lineage of its inputs."""
        return tuple(value.text for rows in below for value in rows.keys.values())

    def kept_values(self, *below: LineageRows) -> tuple[str, ...]:
        """The expressions, over the sources' columns, of what it stores. In: the lineage of its inputs."""
        return ()

    def continues(self, before: Step) -> bool:
        """Whether it can use the state of `before`, the step with its id in the plan that its plan replaces."""
        return self.state_identity == before.state_identity

    def in_place_of(self, before: Step, number: int) -> Step:
        """The step with the store of `before`; or, if that store lacks columns and can be filled from topics, with a
        new store of this number. In: `number`: higher than that of every store of the plan that its plan replaces."""
        return self

    @property
    def store_number(self) -> int:
        """How its store is named in addition to its id; 0 for the store of a query's first plan."""
        return 0

    @property
    def filled_by(self) -> tuple[Step, ...]:
        """The steps from which it stores rows, if reading the topics below them once more fills a new store."""
        return ()

    @property
    def repeatable(self) -> bool:
        """Whether reading the topics of its inputs once more gives the same rows in the end, in whatever order."""
        return self.stateless or self.rekeys

    @property
    def asks_stream_time(self) -> bool:
        """Whether it needs the stream time of the sources below, along steps with `passes_stream_time`."""
        return False

    @property
    def passes_stream_time(self) -> bool:
        """Whether its stream time is that of its first input."""
        return True

    @property
    def grouping_window(self) -> WindowSpec | None:
        """The window by which it groups rows."""
        return None

    @property
    def final(self) -> bool:
        """Whether it emits results only when their window closes."""
        return False

    def forgetting(self, ttl_ms: int) -> Step | None:
        """The step, changed to delete rows itself that were not updated for `ttl_ms`; None if it cannot do that.

        Raises `InvalidProperty` if rows must live longer.
        """
        return None

    @property
    def last_conditions(self) -> tuple[SqlExpression, ...]:
        """The conditions of the last filters: of this step, and of those below it up to the last one that has state or
        gives new keys."""
        return ()

    def deleting_failed(self) -> Step:
        """The step, changed so that a row that fails one of `last_conditions` deletes the row that its key had."""
        return self

    def without_repeats(self, unwanted: bool = False) -> Step:
        """The step, changed to emit no update of a result by an equal one to steps that do not need it.

        In: `unwanted`: the step that reads this one does not need such updates. A step that reads times does need them:
        even an update by an equal row has a later time. So they stay below every step that reads a time.
        """
        if not self.stateless or len(self.inputs) != 1 or reads_times(self.expressions):
            return self
        return self.with_inputs(self.inputs[0].without_repeats(unwanted))

    # ------------------------------------------------------------------ descriptions

    @property
    def word(self) -> str:
        """What a query with such a step does, in a word; empty for steps that every query has."""
        return ""

    def describe(self, text: Text = str) -> str:
        """The step in one line: what it does, and after ` | ` its output columns."""
        raise AssertionError(f"{type(self).__name__} has no description")

    def describe_readably(self) -> str:
        """The step in one readable line: with column names, and without its schema."""
        names = {name: text for child in self.inputs[:1] for name, text in column_names(schema_of(child)).items()}
        text = self.describe(lambda sql: readable(sql, lambda name: names.get(name, name)))
        return with_names(text.partition(" | ")[0])

    def lineage(self, *below: LineageRows) -> LineageRows:
        """The lineage of its columns. In: the lineage of its inputs."""
        raise AssertionError(f"{type(self).__name__} has no lineage")

    @property
    def condition(self) -> SqlExpression | None:
        """The condition that its rows must meet; other rows are dropped."""
        return None

    @property
    def drops_rows_without_key(self) -> bool:
        return False

    @property
    def multiplies(self) -> bool:
        """Whether it emits any number of rows for one input row, including none."""
        return False

    def stall(self, seen: OperatorSeen, covered: Sequence[Step]) -> Iterator[Cause]:
        """Why its operator emits nothing. In: `covered`: the steps that the operator computes, this one last."""
        if seen.rows_in and not seen.rows_out and self.inputs:
            yield _nothing_passes(covered, seen.rows_in)

    def without_inputs(self) -> Self:
        """The step without its inputs."""
        return self.with_inputs(*(NOTHING for _ in self.inputs))


NOTHING = Step("")
"""Stands for an input that does not matter."""


def _nothing_passes(covered: Sequence[Step], rows: int) -> Cause:
    """For row-by-row steps: the one that emits nothing."""
    figures = {"step": covered[-1].id, "rowsIn": rows}
    filters = [step.describe_readably().removeprefix("FILTER ") for step in covered if step.condition is not None]
    if filters:
        return Cause(
            "FILTER_DROPS_ALL",
            f"None of {counted(rows, 'row')} passed the filter {' and '.join(filters)}.",
            "A comparison with NULL is not true either: inspect the rows with PRINT or a push query.",
            figures=figures,
        )
    if any(step.drops_rows_without_key for step in covered):
        return Cause(
            "NULL_KEYS",
            f"All {rows} rows have a NULL grouping key, and were dropped.",
            "Is the column spelled as in the records? Names in JSON are matched in any case.",
            figures=figures,
        )
    step = next((each for each in covered if each.multiplies), covered[-1])
    return Cause(
        "NOTHING_PASSES",
        f"{counted(rows, 'row')} went into {step.describe_readably()}, and none came out.",
        "Rows without a value, and empty arrays in EXPLODE, produce no rows.",
        figures=figures,
    )


def reads_times(expressions: Sequence[SqlExpression]) -> bool:
    """Whether they read a pseudo column that an update of a row by an equal one may change."""
    return any(_PSEUDO.search(each.sql) for each in expressions)


def walk(step: Step) -> list[Step]:
    """All steps below and including `step`, inputs before the steps that read them."""
    return [each for child in step.inputs for each in walk(child)] + [step]


def store_id(step: Step) -> str:
    """The name of its store."""
    return f"{step.id}.{step.store_number}" if step.store_number else step.id


def schema_of(step: Step) -> Schema:
    """The columns of the step's output."""
    return step.schema  # pyrefly: ignore[missing-attribute]


def timed_sources(root: Step) -> set[str]:
    """The sources whose stream time some step needs."""
    timed: set[str] = set()
    for step in walk(root):
        if step.asks_stream_time:
            source = _timed_by(step)
            if not source.inputs:
                timed.add(source.id)
    return timed


def _timed_by(step: Step) -> Step:
    """The step whose stream time `step` sees: a source, or a step with its own stream time."""
    while step.inputs:
        step = step.inputs[0]
        if not step.passes_stream_time:
            break
    return step


def run_where_read(step: Step, timed: Collection[str]) -> bool:
    """Whether it can run where its source is read: stateless, after no change of key, without need for stream time."""
    if not step.stateless or step.id in timed:
        return False
    return all(not child.rekeys and run_where_read(child, timed) for child in step.inputs)


@cache
def _input_fields(step_type: type[Step]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(step_type) if field.type == "Step")
