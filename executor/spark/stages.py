"""A physical plan in two stages: what runs where a source partition is read, and what runs per bucket.

The first stage are the stateless steps of each source up to its first Rekey. The second stage is the rest of the plan,
with a leaf in place of each chain of the first. A bucket is a task (`_part`) of the second stage. A plan whose rows
change their task once more, behind a stateful step, has one bucket, which computes all tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...planner.physical import PhysicalPlan
from ...planner.steps.sink import Sink
from ...planner.steps.source import Source
from ...planner.steps.step import Step, run_where_read, schema_of, timed_sources, walk
from ..partitioning import RekeyPartitioner
from ..pipeline import Pipeline
from ..state.connection import open_connection
from ..tasks import changelog_partition_count, is_stateful


@dataclass(frozen=True, slots=True)
class Chain:
    """A source, and the plan over it that runs where it is read; None where its records go on as they are."""

    source: Source
    plan: PhysicalPlan | None

    @property
    def repartitions(self) -> bool:
        return self.plan is not None and self.plan.root.rekeys


@dataclass(frozen=True, slots=True)
class Stages:
    """`rest`: the second stage; its sources have the ids of those of `plan`."""

    plan: PhysicalPlan
    chains: tuple[Chain, ...]
    rest: PhysicalPlan
    bucket_count: int

    @property
    def sink(self) -> Sink:
        assert isinstance(self.plan.root, Sink)
        return self.plan.root

    @property
    def shuffled(self) -> bool:
        """Whether rows leave the task that reads them: else a bucket is what was read of its source partitions."""
        return any(step.rekeys for step in self.plan.steps())

    @property
    def repartitioned(self) -> frozenset[str]:
        """The sources of `rest` whose rows have come through a Rekey."""
        return frozenset(chain.source.id for chain in self.chains if chain.repartitions)

    @property
    def stateful(self) -> bool:
        return is_stateful(self.plan)

    def bucket_of(self, task: int) -> int:
        return task % self.bucket_count

    def changelog_partitions(self, bucket: int) -> list[int]:
        """The partitions of the changelog that this bucket writes, alone."""
        if not self.stateful:
            return []
        return [task for task in range(changelog_partition_count(self.plan)) if self.bucket_of(task) == bucket]


def split(plan: PhysicalPlan) -> Stages:
    """Cuts the plan in two."""
    timed = timed_sources(plan.root)
    chains: list[Chain] = []

    def cut(step: Step) -> Step:
        if run_where_read(step, timed):
            chains.append(_chain(plan, step))
            return _leaf(chains[-1])
        if isinstance(step, Source):
            chains.append(Chain(step, None))
            return step
        return step.with_inputs(*map(cut, step.inputs))

    rest = replace(plan, root=cut(plan.root))
    one_bucket = any(step.rekeys for step in rest.steps())
    bucket_count = 1 if one_bucket else max(_top(chain).task_count for chain in chains)
    return Stages(plan, tuple(chains), rest, bucket_count)


def _chain(plan: PhysicalPlan, top: Step) -> Chain:
    (source,) = (step for step in walk(top) if isinstance(step, Source))
    bare = top is source and source.kind == "STREAM"
    return Chain(source, None if bare else replace(plan, root=top))


def _top(chain: Chain) -> Step:
    return chain.source if chain.plan is None else chain.plan.root


def _leaf(chain: Chain) -> Source:
    """What the second stage reads: a stream of the chain's output, whatever the source was."""
    if chain.plan is None:
        return chain.source
    connection = open_connection()
    try:
        names = Pipeline(chain.plan, connection, partitioner=RekeyPartitioner()).output_schema.names
    finally:
        connection.close()
    schema = schema_of(chain.plan.root)
    physical = tuple(name for name in names if name[0] in "kv")
    return replace(
        chain.source,
        kind="STREAM",
        schema=schema,
        timestamp=None,
        partition_count=chain.plan.root.task_count,
        columns=None if len(physical) == len(schema.columns) else physical,
    )
