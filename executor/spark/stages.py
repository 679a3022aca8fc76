"""Splits a physical plan for Spark: into subplans where rows change their task, and each subplan into two stages.

A *subplan* is the part of a plan between two changes of task, like a sub-topology in Kafka Streams. The last subplan
ends in the sink. Each other subplan ends in a Rekey: its rows go to the query's repartition topic, which is a source of
the next subplan. The first stage of a subplan consists of the stateless steps of each source, up to the first Rekey;
they run where a partition is read. The second stage is the rest, with a leaf in place of each chain of the first stage.
A bucket is a task (`_part`) of the second stage. Bucket numbers continue from one subplan to the next.

A plan in which every step has one task is not split: one bucket computes all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...logcore.client import TopicPartition
from ...planner.physical import PhysicalPlan
from ...planner.specs import SqlExpression
from ...planner.steps.repartition import Rekey
from ...planner.steps.sink import Sink
from ...planner.steps.source import Source
from ...planner.steps.step import Step, run_where_read, schema_of, timed_sources, walk
from ..partitioning import RekeyPartitioner
from ..pipeline import Pipeline
from ..queries.query_log import repartition_topic
from ..state.connection import MEMORY, EngineSettings
from ..state.databases import of_this_process
from ..tasks import is_stateful


@dataclass(frozen=True, slots=True)
class Chain:
    """A source, and the plan above it that runs where the source is read. None: its records pass unchanged."""

    source: Source
    plan: PhysicalPlan | None

    @property
    def repartitions(self) -> bool:
        return self.plan is not None and self.plan.root.rekeys


@dataclass(frozen=True, slots=True)
class Subplan:
    """`feeders`: the subplans whose rows this one reads. `rest`: the second stage; each of its sources has the id of a
    source of the plan, or of the Rekey at the end of a feeder."""

    number: int
    chains: tuple[Chain, ...]
    feeders: tuple[Subplan, ...]
    rest: PhysicalPlan
    first_bucket: int
    bucket_count: int

    @property
    def name(self) -> str:
        """The id of its root."""
        return self.rest.root.id

    @property
    def buckets(self) -> range:
        """The numbers (within the query) of its buckets."""
        return range(self.first_bucket, self.first_bucket + self.bucket_count)

    def bucket_of(self, task: int) -> int:
        return self.first_bucket + task % self.bucket_count

    @property
    def shuffled(self) -> bool:
        """Whether rows leave the task that reads them. If not, the rows of a bucket are those of its partitions."""
        return bool(self.feeders) or any(chain.repartitions for chain in self.chains)

    @property
    def repartitioned(self) -> frozenset[str]:
        """The sources of `rest` whose rows have passed a Rekey."""
        own = {chain.source.id for chain in self.chains if chain.repartitions}
        return frozenset(own | {feeder.name for feeder in self.feeders})

    @property
    def counted_elsewhere(self) -> frozenset[str]:
        """The sources of `rest` whose rows come from another stage, which counts them under the same ids."""
        own = {chain.source.id for chain in self.chains if chain.plan is not None}
        return frozenset(own | {feeder.name for feeder in self.feeders})

    @property
    def stateful(self) -> bool:
        return is_stateful(self.rest)

    @property
    def path_length(self) -> int:
        """How many numbers distinguish and order the rows of one record (`causes.py`)."""
        return max((feeder.path_length for feeder in self.feeders), default=1) + 2

    def changelog_partitions(self, bucket: int) -> list[int]:
        """The partitions of the changelog that hold the state of this bucket."""
        if not self.stateful:
            return []
        tasks = max(source.task_count for source in self.rest.sources())
        return [task for task in range(tasks) if self.bucket_of(task) == bucket]


@dataclass(frozen=True, slots=True)
class Stages:
    """`subplans`: each one follows the subplans whose rows it reads; the last one has the sink."""

    plan: PhysicalPlan
    subplans: tuple[Subplan, ...]

    @property
    def sink(self) -> Sink:
        assert isinstance(self.plan.root, Sink)
        return self.plan.root

    @property
    def stateful(self) -> bool:
        return is_stateful(self.plan)

    @property
    def bucket_count(self) -> int:
        return sum(subplan.bucket_count for subplan in self.subplans)

    @property
    def repartition_topic(self) -> str:
        return repartition_topic(self.plan.query_id)

    def lane_of(self, bucket: int) -> TopicPartition:
        """The partition to which the bucket of a feeding subplan writes its rows. Nothing else writes there."""
        return TopicPartition(self.repartition_topic, bucket)

    def subplan_of(self, bucket: int) -> Subplan:
        return next(subplan for subplan in self.subplans if bucket in subplan.buckets)


def split(plan: PhysicalPlan) -> Stages:
    """Splits the plan into subplans."""
    timed = timed_sources(plan.root)
    subplans: list[Subplan] = []
    apart = has_several_tasks(plan)

    def subplan(root: Step) -> Subplan:
        chains: list[Chain] = []
        feeders: list[Subplan] = []

        def cut(step: Step) -> Step:
            if run_where_read(step, timed):
                chains.append(_chain(plan, step))
                return _leaf_of_chain(chains[-1])
            if isinstance(step, Source):
                chains.append(Chain(step, None))
                return step
            if apart and step.rekeys and step is not root:
                feeders.append(subplan(step))
                return _leaf_of_subplan(feeders[-1])
            return step.with_inputs(*map(cut, step.inputs))

        rest = replace(plan, root=cut(root))
        count = max(source.task_count for source in rest.sources())
        first = sum(each.bucket_count for each in subplans)
        subplans.append(Subplan(len(subplans), tuple(chains), tuple(feeders), rest, first, count))
        return subplans[-1]

    subplan(_by_key_of_sink(plan.root) if apart else plan.root)
    return Stages(plan, tuple(subplans))


def _by_key_of_sink(sink: Step) -> Step:
    """The sink, above one more Rekey if rows are not partitioned by the sink's key. For example, a foreign-key join
    writes under the primary key. When a row moves from one task to another, only one of them may write it."""
    assert isinstance(sink, Sink)
    step, moved = sink.input, False
    while step.stateless and not step.rekeys and step.inputs:
        moved = moved or _moves_rows(step)
        (step,) = step.inputs
    if not (moved and step.stateful):
        return sink
    schema = schema_of(sink.input)
    key = tuple(SqlExpression(f"k{number}", column.type) for number, column in enumerate(schema.key))
    rekey = Rekey(f"{sink.id}.rekey", sink.input, key, schema, sink.key_format, sink.partition_count)
    return replace(sink, input=rekey)


def _moves_rows(step: Step) -> bool:
    """Whether rows with the same new key may be in several tasks, because the key they are partitioned by is not part
    of the new key."""
    if not step.new_key:
        return False
    taken = {expression.sql.strip('"') for expression in step.new_key}
    (below,) = step.inputs
    lain_by = [{f"k{number}"} for number in range(len(schema_of(below).key))]
    while below.passes_columns:
        (below,) = below.inputs
    if isinstance(below, Rekey):  # a value column from which the key was computed has the same value
        lain_by = [names | {expression.sql.strip('"')} for names, expression in zip(lain_by, below.key, strict=True)]
    if not lain_by:
        return step.task_count > 1
    return not all(names & taken for names in lain_by)


def has_several_tasks(plan: PhysicalPlan) -> bool:
    return any(step.task_count > 1 for step in plan.steps())


def read_before(stages: Stages, subplan: Subplan, topic: str) -> list[Source]:
    """The sources of this topic that earlier subplans read."""
    before = stages.subplans[: subplan.number]
    return [chain.source for each in before for chain in each.chains if chain.source.topic == topic]


def _chain(plan: PhysicalPlan, top: Step) -> Chain:
    (source,) = (step for step in walk(top) if isinstance(step, Source))
    bare = top is source and source.kind == "STREAM"
    return Chain(source, None if bare else replace(plan, root=top))


def _leaf_of_chain(chain: Chain) -> Source:
    """What the second stage reads: a stream of the chain's output, whatever the kind of the source."""
    if chain.plan is None:
        return chain.source
    leaf = replace(chain.source, kind="STREAM", timestamp=None)
    return _reading(leaf, chain.plan, frozenset())


def _leaf_of_subplan(feeder: Subplan) -> Source:
    """What the next subplan reads from the repartition topic: a stream of changes."""
    root = feeder.rest.root
    source = feeder.rest.sources()[0]  # its formats do not matter
    leaf = replace(
        source,
        id=root.id,
        topic=repartition_topic(feeder.rest.query_id),
        kind="STREAM",
        timestamp=None,
        materialized=False,
        ttl_ms=None,
        key_window=root.window_of_keys,
        name="",
    )
    return _reading(leaf, feeder.rest, feeder.repartitioned)


def _reading(leaf: Source, plan: PhysicalPlan, repartitioned: frozenset[str]) -> Source:
    """The leaf with the output columns of the plan."""
    with of_this_process().open(MEMORY, EngineSettings(threads=1)) as database:
        pipeline = Pipeline(plan, database.connection, partitioner=RekeyPartitioner(), repartitioned=repartitioned)
        names = pipeline.output_schema.names
    schema = schema_of(plan.root)
    physical = tuple(name for name in names if name[0] in "kv")
    return replace(
        leaf,
        schema=schema,
        key_window=leaf.key_window if "_ws" in names else None,
        partition_count=plan.root.task_count,
        columns=None if len(physical) == len(schema.columns) else physical,
    )
