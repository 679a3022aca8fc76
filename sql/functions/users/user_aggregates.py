"""A user's class as an aggregate: its methods `init`, `add`, `result`, and optionally `undo` and `merge`.

A state is stored as JSON text, or in the type that CREATE FUNCTION declares with STATE. The methods get a copy each
time, so they may change a state in place. If a row fails, or takes too long, the state is unchanged, and the failure is
recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from ...types import STRING, SqlType
from ..aggregation.aggregate_fold import AggregateFunction, Fold, State, Step
from ..bounds import BoundExceeded
from ..signature import Parameter, Signature
from . import python_body
from .python_values import reader, writer
from .time_limit import Outcome, within_time
from .user_calls import Definition, load_in_time, note_failure, read_row


class AggregateDefinition(Definition, Protocol):
    @property
    def id(self) -> str: ...
    @property
    def state(self) -> SqlType | None: ...
    @property
    def signature(self) -> str: ...


def aggregate_entry(definition: AggregateDefinition, doc: str) -> AggregateFunction:
    methods = _methods(definition)
    names = definition.python.parameters
    wanted = Signature(
        tuple(Parameter(name, p.type) for name, p in zip(names, definition.parameters, strict=True)),
        definition.returns,
    )

    def make(types: Sequence[SqlType], constants: Sequence[Any], properties: Mapping[str, str]) -> Fold | None:
        return _fold(definition, methods) if wanted.accepts(types, casts=True) else None

    return AggregateFunction(
        definition.name,
        doc,
        (f"{definition.name}({', '.join(f'{p.name} {p.type}' for p in wanted.parameters)})",),
        (),
        make,
        supports_undo="undo" in methods,
        arguments=len(definition.parameters),
        supports_merge="merge" in methods,
    )


def _methods(definition: AggregateDefinition) -> frozenset[str]:
    """None where the text cannot be read, by a Python older than the one that it was written for, say: that is an error
    of each row then, and not of whoever reads the catalog."""
    try:
        return python_body.methods_of(definition.python)
    except python_body.BodyError:
        return frozenset()


def _fold(definition: AggregateDefinition, methods: frozenset[str]) -> Fold:
    calls = _Calls(definition)
    state = STRING if definition.state is None else definition.state
    return Fold(
        parameter_types=tuple(parameter.type for parameter in definition.parameters),
        state_types=(state,),
        return_type=definition.returns,
        initial=(None,),
        add=lambda state, *row: calls.step("add", state, row),
        undo=(lambda state, *row: calls.step("undo", state, row)) if "undo" in methods else None,
        steps=calls.run,
        merge=calls.merge,
        result=calls.result,
    )


class _Calls:
    """The methods over stored states; a stored state of NULL is a group's first one, which `init` gives."""

    def __init__(self, definition: AggregateDefinition) -> None:
        self._definition = definition
        self._readers = [reader(parameter.type) for parameter in definition.parameters]
        self._write = writer(definition.returns)
        self._read_state: Callable[[Any], Any] = json.loads
        self._write_state: Callable[[Any], Any] = _json
        if definition.state is not None:
            self._read_state = reader(definition.state) or _copied
            self._write_state = writer(definition.state)

    @cached_property
    def _object(self) -> Any:
        made: Any = python_body.load(self._definition.python)
        return made()

    def _state(self, state: State) -> Any:
        return self._object.init() if state[0] is None else self._read_state(state[0])

    def run(self, steps: Sequence[Step], states: list[State]) -> list[Any]:
        """The results of the steps that ask for one; `states` become what they are after the last step."""

        def kept(position: int, value: Any) -> None:
            method, group, _ = steps[position]
            if method != "result":
                states[group] = value

        def compute(method: str, group: int, row: tuple[Any, ...]) -> Any:
            return self._result(states[group]) if method == "result" else self._stepped(method, states[group], row)

        outcomes = self._in_time(compute, steps, kept)
        for (_, group, row), (_, error) in zip(steps, outcomes, strict=True):
            if error is not None:
                note_failure(self._definition, error, row or (states[group][0],))
        return [value for (method, _, _), (value, _) in zip(steps, outcomes, strict=True) if method == "result"]

    def step(self, method: str, state: State, row: tuple[Any, ...]) -> State:
        return self._once(lambda: self._stepped(method, state, row), row, state)

    def merge(self, a: State, b: State) -> State:
        if a[0] is None or b[0] is None:
            return b if a[0] is None else a
        both = (a[0], b[0])
        return self._once(lambda: (self._write_state(self._object.merge(self._state(a), self._state(b))),), both, a)

    def result(self, state: State) -> Any:
        return self._once(lambda: self._result(state), state, None)

    def _stepped(self, method: str, state: State, row: tuple[Any, ...]) -> State:
        if not self._definition.called_on_null and None in row:
            return state
        changed = getattr(self._object, method)(self._state(state), *read_row(row, self._readers))
        return (self._write_state(changed),)

    def _result(self, state: State) -> Any:
        return self._write(self._object.result(self._state(state)))

    def _once(self, compute: Callable[[], Any], arguments: Sequence[Any], otherwise: Any) -> Any:
        ((value, error),) = self._in_time(compute, [()])
        if error is None:
            return value
        note_failure(self._definition, error, arguments)
        return otherwise

    def _in_time(
        self,
        compute: Callable[..., Any],
        rows: Sequence[Sequence[Any]],
        keep: Callable[[int, Any], None] | None = None,
    ) -> list[Outcome]:
        try:
            load_in_time(self._definition)
        except (python_body.BodyError, BoundExceeded) as error:
            return [(None, error)] * len(rows)
        return within_time(compute, rows, keep)


def _copied(value: Any) -> Any:
    """Lists and dicts of plain values, anew."""
    match value:
        case list():
            return [_copied(item) for item in value]
        case dict():
            return {name: _copied(item) for name, item in value.items()}
        case _:
            return value


def _json(state: Any) -> str:
    _check_json(state)
    text = json.dumps(state, ensure_ascii=False, separators=(",", ":"))
    return text if _has_utf8(text) else json.dumps(state, separators=(",", ":"))


def _has_utf8(text: str) -> bool:
    """False for half of a surrogate pair, which JSON has only as an escape."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_json(state: Any) -> None:
    match state:
        case dict():
            for name, item in state.items():
                if not isinstance(name, str):
                    raise TypeError(f"the state has the key {name!r}; in JSON keys are texts")
                _check_json(item)
        case list() | tuple():
            for item in state:
                _check_json(item)
        case None | bool() | int() | float() | str():
            return
        case _:
            raise TypeError(
                f"the state holds {state!r} ({type(state).__name__}), which JSON cannot hold; name a type with STATE"
            )
