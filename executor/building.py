"""Builds operators from steps: the nodes of a pipeline, and what a module of `operators/` needs to create one.

A module names the steps that it runs: `@builds(Filter, Project)`. No other module needs to know them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeVar

import duckdb
import numpy as np
import pyarrow as pa

from ..planner.physical import PhysicalPlan
from ..planner.schema import Schema
from ..planner.steps.repartition import Rekey
from ..planner.steps.step import Step, timed_sources
from .batch import ChangeBatch
from .figures import Meters, OperatorMeter
from .state.connection import Guard
from .state.store import StateStore

Emit = Literal["every", "last"]
"""What a table emits: every change, or the last change per key and batch."""

Partitioner = Callable[[Rekey, pa.Table], np.ndarray]
"""Returns each row's partition; the table has the columns of the rekeyed step."""

_NO_STORES: Mapping[str, StateStore] = MappingProxyType({})


class Keeper:
    """The common base of operators and joiners. `stores`: its state, by name. `late_rows`: how many late rows it has
    dropped since the number was last read; the reader resets it."""

    stores: Mapping[str, StateStore] = _NO_STORES
    late_rows: int = 0

    @property
    def waits_for_time(self) -> bool:
        """Whether it holds back results until stream time advances."""
        return False


class Operator(Keeper):
    """An operator with one input. `schema`, `extra`, `columns` describe its output (see `batch_schema`)."""

    schema: Schema
    extra: tuple[str, ...]
    columns: Sequence[str] | None = None

    def process(self, batch: ChangeBatch) -> ChangeBatch:
        raise AssertionError(f"{type(self).__name__} does not process")

    def of_nothing(self) -> ChangeBatch | None:
        """Its output for no input rows at all; None if there is none."""
        return None


class Joiner(Keeper):
    """An operator with two inputs."""

    def process(self, left: ChangeBatch, right: ChangeBatch) -> ChangeBatch:
        raise AssertionError(f"{type(self).__name__} does not process")


class PipelineNode(Protocol):
    """A part of the pipeline. `schema`, `extra`, `columns` describe its batches (see `batch_schema`)."""

    schema: Schema
    extra: tuple[str, ...]
    columns: Sequence[str] | None

    def evaluate(self, inputs: Mapping[str, ChangeBatch]) -> ChangeBatch:
        """The node's output for a batch. In: batches by the id of their source."""
        ...

    def of_nothing(self) -> ChangeBatch | None:
        """Its output for no input rows at all; None if there is none."""
        ...


@dataclass(slots=True)
class ChainNode:
    """A node with one input and one operator."""

    input: PipelineNode
    operator: Operator
    schema: Schema
    extra: tuple[str, ...]
    columns: Sequence[str] | None
    meter: OperatorMeter

    def evaluate(self, inputs: Mapping[str, ChangeBatch]) -> ChangeBatch:
        batch = self.input.evaluate(inputs)
        since = time.perf_counter_ns()
        out = self.operator.process(batch)
        self.meter.add(batch.rows.num_rows, out.rows, since)
        return out

    def of_nothing(self) -> ChangeBatch | None:
        below = self.input.of_nothing()
        return self.operator.of_nothing() if below is None else self.operator.process(below)


class Building:
    """Creates the nodes of a plan, leaves first.

    `pseudo`: the pseudo columns that some expression reads. `timed`: the sources whose stream time some step needs.
    `guard`: where statements without state run. `keepers`: all operators and joiners, each with its meter.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        plan: PhysicalPlan,
        *,
        emit: Emit,
        partitioner: Partitioner | None,
        repartitioned: frozenset[str],
        meters: Meters,
        guard: Guard,
    ) -> None:
        self.connection = connection
        self.guard = guard
        self.properties = plan.properties
        self.emit: Emit = emit
        self.partitioner = partitioner
        self.stores: dict[str, StateStore] = {}
        self.keepers: list[tuple[OperatorMeter, Keeper]] = []
        self._meters = meters
        texts = [expression.sql for step in plan.steps() for expression in step.expressions]
        self.pseudo = tuple(name for name in ("_rowpartition", "_offset") if any(name in text for text in texts))
        self.timed = timed_sources(plan.root) - repartitioned

    def node(self, step: Step) -> PipelineNode:
        """The node of a step, with its input nodes."""
        return _BUILDERS[type(step)](step, self)

    def meter(self, *steps: Step) -> OperatorMeter:
        """The meter of the operator that computes these steps."""
        return self._meters.of(tuple(step.id for step in steps))

    def keep(self, keeper: Keeper, meter: OperatorMeter) -> None:
        self.stores.update(keeper.stores)
        self.keepers.append((meter, keeper))

    def chain(self, below: PipelineNode, operator: Operator, *steps: Step) -> ChainNode:
        """The node of an operator that computes these steps on the output of `below`."""
        meter = self.meter(*steps)
        self.keep(operator, meter)
        return ChainNode(below, operator, operator.schema, operator.extra, operator.columns, meter)


S = TypeVar("S", bound=Step)
Builder = Callable[[S, Building], PipelineNode]

_BUILDERS: dict[type[Step], Builder[Any]] = {}


def runnable_steps() -> frozenset[type[Step]]:
    """The steps that some operator runs."""
    return frozenset(_BUILDERS)


def builds(*step_types: type[S]) -> Callable[[Builder[S]], Builder[S]]:
    """Registers the function that creates the nodes of these step types."""

    def register(build: Builder[S]) -> Builder[S]:
        for step_type in step_types:
            assert step_type not in _BUILDERS, f"two operators for {step_type.__name__}"
            _BUILDERS[step_type] = build
        return build

    return register
