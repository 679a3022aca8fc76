"""One run of a query on Spark: from the place where all its buckets stand, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...logcore.client import LogClient
from ...logcore.failpoints import fp
from ...planner.physical import PhysicalPlan
from ..queries.query_log import offset_group
from .alignment import align
from .batches import Batch, BatchPlanner
from .bucket import Report
from .lanes import Positions
from .spec import RunSpec


class SparkRun:
    """Shuts every earlier run out, and goes on where the query stands.

    In: `run_batch` does a batch and gives what its buckets did; the batch is done, or any part of it is. A run is over
    after an exception: the next one brings all buckets to one place. Raises `StaleRun` once another has begun, and what
    the log raises. `parallelism`: how many tasks may read.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        client: LogClient,
        spec: RunSpec,
        run_batch: Callable[[Batch], Sequence[Report]],
        parallelism: Callable[[], int],
        records_max: int,
    ) -> None:
        self._spec = spec
        self._run_batch = run_batch
        self._parallelism = parallelism
        self._planner = BatchPlanner(spec.stages, client, records_max)
        self._producer = client.transactional_producer(plan.query_id)
        self._at = align(plan, client, spec.properties, spec.run, self._producer)

    def step(self, until: Positions | None = None) -> Sequence[Report] | None:
        """Does the next batch; None where nothing came for a moment, or nothing is left before `until`."""
        batch = self._planner.next(self._at, self._parallelism(), until)
        if batch is None:
            return None
        fp("spark.before_batch")
        reports = self._run_batch(batch)
        self._commit(batch.ends)
        self._at = batch.ends
        return reports

    def available(self) -> Positions:
        """Up to where each lane can be read now."""
        return self._planner.available(self._at)

    def _commit(self, positions: Positions) -> None:
        """In a transaction of the query's own id, so that a run that is over cannot move them any more."""
        fp("spark.before_offsets")
        self._producer.begin()
        self._producer.send_offsets(offset_group(self._spec.query_id), positions)
        self._producer.commit()
        fp("spark.after_offsets")
