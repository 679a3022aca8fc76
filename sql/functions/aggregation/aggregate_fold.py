"""What an aggregate function is: an entry of the catalog, and the fold that it becomes for given argument types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from millstream.errors import Span, TypeMismatch

from ...types import BIGINT, BOOLEAN, DOUBLE, INTEGER, NULL, STRING, Field, SqlType, Struct
from .aggregate_kernels import COMPILED_FROM, GroupEvents, Ints, Kernel
from .aggregate_values import as_physical, as_type, column_of, values_of

State = tuple[Any, ...]
Step = tuple[Literal["undo", "add", "result"], int, tuple[Any, ...]]
"""What is done, to which group, with which arguments. Each "result" gives one."""


@dataclass(frozen=True, slots=True)
class Fold:
    """An aggregate over arguments of known types.

    A state is a tuple of Python values (see `aggregate_values.py`), one per `state_types`; it is never changed in
    place. `add` takes the state and one row's arguments, `undo` takes a row back that was added, `merge` joins the
    states of two sessions, the earlier one first. `load` and `dump` turn a state as it is stored into one to
    compute with, and back. `kernel` is the same fold as a compiled loop; `steps` is the loop over many steps, where it
    is not simply one after the other in this thread. `absorb` is `add` for a state that nobody else sees: it may change
    the lists and dicts in it, which saves a copy of the group for each row. `numbered` is the same fold for states that
    merge, where sessions do not tell the order in which their rows came.
    """

    parameter_types: tuple[SqlType, ...]
    state_types: tuple[SqlType, ...]
    return_type: SqlType
    initial: State
    add: Callable[..., State]
    merge: Callable[[State, State], State]
    result: Callable[[State], Any]
    undo: Callable[..., State] | None = None
    absorb: Callable[..., State] | None = None
    kernel: Kernel | None = None
    steps: Callable[[Sequence[Step], list[State]], list[Any]] | None = None
    load: Callable[[State], State] = lambda state: state
    dump: Callable[[State], State] = lambda state: state
    numbered: NumberedFold | None = None

    def run(
        self,
        events: GroupEvents,
        arguments: Sequence[pa.Array],
        state: Sequence[pa.Array],
        known: Sequence[bool],
        *,
        last_only: bool = False,
        compiled: bool | None = None,
    ) -> tuple[pa.Array, list[pa.Array]]:
        """Fold events in order. In: state columns with a row per group (`known`: the group has a state; else its row
        is NULL). Out: the result after each event, and the new state columns. With `last_only` only the results of each
        group's last event are asked for; the others may be anything."""
        if compiled is None:
            compiled = len(events) >= COMPILED_FROM
        if compiled and self.kernel is not None:
            return self._run_compiled(self.kernel, events, arguments, state)
        if last_only and self.steps is None:
            return self._run_to_the_last(events, arguments, state, known)
        return self._run_python(events, arguments, state, known)

    def results(self, state: Sequence[pa.Array]) -> pa.Array:
        """The results of stored states."""
        groups = len(state[0])
        nothing = np.full(groups, -1, dtype=np.int64)
        arguments = [pa.array([], type_.arrow) for type_ in self.parameter_types]
        events = GroupEvents(np.arange(groups, dtype=np.int64), nothing, nothing)
        return self.run(events, arguments, state, [True] * groups)[0]

    def _run_compiled(
        self, kernel: Kernel, events: GroupEvents, arguments: Sequence[pa.Array], state: Sequence[pa.Array]
    ) -> tuple[pa.Array, list[pa.Array]]:
        filled = [
            column if initial is None or not column.null_count else column.fill_null(initial)
            for column, initial in zip(map(as_physical, state), self.initial, strict=True)
        ]
        out, new_state = kernel(events, [as_physical(column) for column in arguments], filled)
        types = self.state_types
        return as_type(out, self.return_type), [as_type(column, t) for column, t in zip(new_state, types, strict=True)]

    def _run_python(
        self, events: GroupEvents, arguments: Sequence[pa.Array], state: Sequence[pa.Array], known: Sequence[bool]
    ) -> tuple[pa.Array, list[pa.Array]]:
        states = self.states_of(state, known)
        rows = list(zip(*map(values_of, arguments), strict=True)) if arguments else None
        if self.steps is not None:
            results = self.steps(_steps(events, rows), states)
            return column_of(results, self.return_type), self.columns_of(states)
        results = []
        for group, undo, add in zip(events.group.tolist(), events.undo.tolist(), events.add.tolist(), strict=True):
            current = states[group]
            if undo >= 0:
                assert self.undo is not None  # the planner refuses such aggregates over tables
                current = self.undo(current, *(rows[undo] if rows else ()))
            if add >= 0:
                current = self.add(current, *(rows[add] if rows else ()))
            states[group] = current
            results.append(self.result(current))
        return column_of(results, self.return_type), self.columns_of(states)

    def _run_to_the_last(
        self, events: GroupEvents, arguments: Sequence[pa.Array], state: Sequence[pa.Array], known: Sequence[bool]
    ) -> tuple[pa.Array, list[pa.Array]]:
        states = self.states_of(state, known)
        add = self.add
        if self.absorb is not None:
            add = self.absorb
            states = [each if there else own(each) for each, there in zip(states, known, strict=True)]
        rows = list(zip(*map(values_of, arguments), strict=True)) if arguments else None
        for group, out, into in zip(events.group.tolist(), events.undo.tolist(), events.add.tolist(), strict=True):
            if out >= 0:
                assert self.undo is not None  # the planner refuses such aggregates over tables
                states[group] = self.undo(states[group], *(rows[out] if rows else ()))
            if into >= 0:
                states[group] = add(states[group], *(rows[into] if rows else ()))
        results = column_of([self.result(each) for each in states], self.return_type)
        return results.take(_at_last_events(events.group, len(states))), self.columns_of(states)

    def states_of(self, columns: Sequence[pa.Array], known: Sequence[bool]) -> list[State]:
        """The states in these columns; the initial one where a group is not known."""
        stored = zip(*map(values_of, columns), strict=True)
        return [self.load(state) if there else self.initial for state, there in zip(stored, known, strict=True)]

    def columns_of(self, states: Sequence[State]) -> list[pa.Array]:
        dumped = [self.dump(state) for state in states]
        return [column_of([state[i] for state in dumped], type_) for i, type_ in enumerate(self.state_types)]


@dataclass(frozen=True, slots=True)
class NumberedFold:
    """A fold that takes one more argument, the last one, a number that is larger for rows that come later, and keeps it
    in the state. `last` gives the largest number in a state, -1 where there is none."""

    fold: Fold
    last: Callable[[State], int]


def _at_last_events(group: Ints, groups: int) -> pa.Array:
    """Of each event the group it is the last one of; NULL for the others."""
    events = np.arange(len(group), dtype=np.int64)
    last = np.full(groups, -1, dtype=np.int64)
    last[group] = events
    return pa.array(group, mask=last[group] != events)


def own(state: State) -> State:
    """A copy that may be changed in place."""
    return tuple(value.copy() if isinstance(value, (list, dict, bytearray)) else value for value in state)


def _steps(events: GroupEvents, rows: list[tuple[Any, ...]] | None) -> list[Step]:
    steps: list[Step] = []
    for group, undo, add in zip(events.group.tolist(), events.undo.tolist(), events.add.tolist(), strict=True):
        if undo >= 0:
            steps.append(("undo", group, rows[undo] if rows else ()))
        if add >= 0:
            steps.append(("add", group, rows[add] if rows else ()))
        steps.append(("result", group, ()))
    return steps


@dataclass(frozen=True, slots=True)
class AggregateSignature:
    """A call whose types fit.

    `parameter_types`: what the non-constant arguments have to be converted to. `intermediate_type`: of what a group
    keeps between rows; a format that cannot hold it cannot be the source's (ksqlDB refuses such queries).
    """

    parameter_types: tuple[SqlType, ...]
    return_type: SqlType
    intermediate_type: SqlType


@dataclass(frozen=True, slots=True)
class AggregateExample:
    """Rows of arguments go in, in order, and `result` comes out. Values as `aggregate_values.py` has them."""

    types: tuple[SqlType, ...]
    rows: tuple[tuple[Any, ...], ...]
    result: Any
    constants: tuple[Any, ...] = ()


# (argument types, constants, properties) → the fold, or None where the types do not fit
FoldMaker = Callable[[Sequence[SqlType], Sequence[Any], Mapping[str, str]], Fold | None]


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """One aggregate of the catalog. `constants`: the fewest and the most literal arguments, which stand last.

    `arguments`: how many others there are; None is any number from one on. `supports_undo`: over a table in ksqlDB.
    """

    name: str
    doc: str
    signatures: tuple[str, ...]
    examples: tuple[AggregateExample, ...]
    make: FoldMaker
    supports_undo: bool
    arguments: int | None = 1
    constants: tuple[int, int] = (0, 0)
    properties: tuple[str, ...] = field(default=())
    supports_merge: bool = True  # without it there is none in session windows
    make_undoable: FoldMaker | None = None  # for rows that are taken back, where `make` keeps too little for that
    picks: Literal["least", "greatest"] | None = None  # where the result is one of the group's values by their order

    @property
    def kind(self) -> Literal["aggregate"]:
        return "aggregate"

    @property
    def takes_back(self) -> bool:
        """Whether it works over rows that are taken back."""
        return self.supports_undo or self.make_undoable is not None

    def constant_positions(self, n_arguments: int) -> tuple[int, ...]:
        """Which arguments of a call with so many must be literals."""
        fewest, most = self.constants
        if self.arguments is None:
            return tuple(range(n_arguments - fewest, n_arguments)) if n_arguments > fewest else ()
        return tuple(range(self.arguments, min(n_arguments, self.arguments + most)))

    def resolve(
        self, argument_types: Sequence[SqlType], constants: Sequence[object] = (), span: Span | None = None
    ) -> AggregateSignature:
        """`argument_types` are those of the non-constant arguments. Raises `TypeMismatch`."""
        fold = None
        if self.constants[0] <= len(constants) <= self.constants[1]:
            fold = self.make(argument_types, constants, {})
        if fold is None:
            types = ["null" if type_ == NULL else str(type_) for type_ in argument_types]
            given = ", ".join([*types, *map(_type_name, constants)])
            raise TypeMismatch(
                f"Function '{self.name}' does not accept parameters ({given}).",
                span=span,
                hint=f"Valid alternatives are: {'; '.join(self.signatures)}.",
            )
        return AggregateSignature(fold.parameter_types, fold.return_type, intermediate_type(fold))

    def fold(
        self,
        argument_types: Sequence[SqlType],
        constants: Sequence[object] = (),
        properties: Mapping[str, str] | None = None,
        *,
        retracts: bool = False,
    ) -> Fold:
        """The fold for types that `resolve` has accepted. `retracts`: rows may be taken back."""
        make = self.make_undoable if retracts and self.make_undoable is not None else self.make
        fold = make(argument_types, constants, properties or {})
        assert fold is not None, f"{self.name} was planned with types it does not take"
        return fold


def _type_name(constant: object) -> str:
    """As ksqlDB's messages name it: by its type alone."""
    match constant:
        case None:
            return "null"
        case bool():
            return str(BOOLEAN)
        case int():
            return str(INTEGER if -(2**31) <= constant < 2**31 else BIGINT)
        case float():
            return str(DOUBLE)
        case _:
            return str(STRING)


def intermediate_type(fold: Fold) -> SqlType:
    if len(fold.state_types) == 1:
        return fold.state_types[0]
    return Struct(tuple(Field(f"S{i}", type_) for i, type_ in enumerate(fold.state_types)))
