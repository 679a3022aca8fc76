"""Runs the operators of a physical plan: batches of its sources go in, the rows for its sink come out.

A pipeline only computes. The runtime reads topics, writes to them, and commits.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

import duckdb
import pyarrow as pa

from ..planner.physical import PhysicalPlan
from ..planner.steps.sink import Sink
from ..sql.functions.catalog import register_udfs
from ..sql.functions.failures import collecting
from ..sql.functions.udf import failures_of
from . import operators
from .batch import ChangeBatch
from .building import Building, Emit, Partitioner
from .figures import Meters
from .operators.columns import batch_schema
from .record_error import RecordError, of_expressions
from .sources.source_reader import empty_rows
from .state.connection import Guard, SideConnections
from .state.state_table import TableSettlement
from .state.store import StateStore, StoreChanges

for _module in pkgutil.iter_modules(operators.__path__):  # each module registers the steps that it builds
    importlib.import_module(f"{operators.__name__}.{_module.name}")


class Pipeline:
    """The operators between the sources and the sink of a plan.

    `emit`: every change of a table, or the last change per key and batch. `partitioner` finds the partitions of a
    `Rekey` with more than one; the runtime provides it, since it knows how keys are encoded. `repartitioned`: sources
    whose rows went through a Rekey elsewhere: there, only the rows themselves advance stream time.

    An error leaves the stores undefined: roll back the transaction, and create a new pipeline on the same connection.
    `write_behind`: changes reach DuckDB's tables only with `settle` or `take_settlements`; without it, at the end of
    each `process`, inside the transaction that its caller opened on the connection.
    `meters` count what the operators do. `side`: connections on which statements without state run in parallel; without
    it they do not. `interruptible`: interrupting the connection stops everything that can take long. `names_expired`:
    as in `StateStore`.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        connection: duckdb.DuckDBPyConnection,
        *,
        emit: Emit = "every",
        partitioner: Partitioner | None = None,
        repartitioned: frozenset[str] = frozenset(),
        write_behind: bool = False,
        meters: Meters | None = None,
        side: SideConnections | None = None,
        interruptible: bool = False,
        names_expired: bool = False,
    ) -> None:
        self.plan = plan
        self._write_behind = write_behind
        steps = plan.steps()
        register_udfs(connection, sorted({udf for step in steps for each in step.expressions for udf in each.udfs}))
        self._failures = failures_of(connection)
        building = Building(
            connection,
            plan,
            emit=emit,
            partitioner=partitioner,
            repartitioned=repartitioned,
            meters=meters or Meters(),
            guard=Guard(side, side or SideConnections(connection), interruptible),
        )
        self._root = building.node(plan.root.input if isinstance(plan.root, Sink) else plan.root)
        self._sources = frozenset(source.id for source in plan.sources())
        self.stores: Mapping[str, StateStore] = building.stores
        for store in self.stores.values():
            store.names_expired = names_expired
        self._keepers = building.keepers

    @property
    def output_schema(self) -> pa.Schema:
        """The columns of the output of `process`."""
        return batch_schema(self._root.schema, self._root.extra, self._root.columns)

    def process(self, inputs: Mapping[str, ChangeBatch]) -> ChangeBatch:
        """Computes a batch. In: batches by the id of the source step; a source without records may be absent; `_seq`
        orders the rows of all of them. Out: the sink's input."""
        assert self._sources.issuperset(inputs), f"not sources of the plan: {set(inputs) - self._sources}"
        with collecting(self._failures):
            result = self._root.evaluate(inputs)
        self._failures.check()
        for meter, keeper in self._keepers:
            meter.late_rows, keeper.late_rows = meter.late_rows + keeper.late_rows, 0
        if not self._write_behind:
            self.settle()
        return result

    def of_nothing(self) -> ChangeBatch:
        """What an aggregation without GROUP BY that got no rows, and the steps after it, give for that; empty if there
        is none. Call it once, after all rows."""
        return self._root.of_nothing() or ChangeBatch(self.output_schema.empty_table())

    def process_idle(self, elapsed_ms: int) -> ChangeBatch:
        """Advances stream time after the sources were idle, which may close windows."""
        return self.process(
            {source.id: ChangeBatch(empty_rows(source), elapsed_ms=elapsed_ms) for source in self.plan.sources()}
        )

    @property
    def waits_for_time(self) -> bool:
        """Whether results are held back until stream time advances."""
        return any(keeper.waits_for_time for _, keeper in self._keepers)

    def settle(self) -> None:
        """Writes the stores' changes to their tables."""
        for store in self.stores.values():
            store.settle()

    def take_settlements(self) -> list[TableSettlement]:
        """The stores' changes that their tables have yet to get; apply them before taking the next ones."""
        taken = (store.take_settlement() for store in self.stores.values())
        return [each for each in taken if each is not None]

    def take_failures(self) -> list[RecordError]:
        """The failures of expressions and users' functions since the last call, and exceeded bounds of functions; the
        failed values are NULL."""
        return of_expressions(self._failures.take())

    def take_changes(self) -> list[StoreChanges]:
        """The stores' changes since the last call, in order for each store."""
        return [changes for store in self.stores.values() for changes in store.take_changes()]

    def restore(self, store_id: str, rows: pa.Table) -> None:
        """Applies recorded changes of a store. Ignores those of a store that only an earlier plan had, before CREATE OR
        REPLACE."""
        store = self.stores.get(store_id)
        if store is not None:
            store.restore(rows)
