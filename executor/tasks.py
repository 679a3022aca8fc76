"""What the runtime needs to know about a physical plan: its tasks, state and order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from ..logcore.client import TopicPartition
from ..planner.physical import PhysicalPlan
from ..planner.steps.repartition import Rekey
from ..planner.steps.sink import Sink
from ..planner.steps.source import Source
from ..planner.steps.step import Step
from .batch import ChangeBatch


def in_one_task(plan: PhysicalPlan) -> PhysicalPlan:
    """The plan with a single task, however many partitions its topics have, so that results do not depend on the
    distribution of keys. For the Sandbox."""

    def alone(step: Step) -> Step:
        if isinstance(step, Source):
            return replace(step, partition_count=1)
        step = step.with_inputs(*map(alone, step.inputs))
        return replace(step, partition_count=1) if isinstance(step, Rekey) else step

    return replace(plan, root=alone(plan.root))


def spread(batch: ChangeBatch, task_count: int) -> ChangeBatch:
    """The batch, distributed over `task_count` tasks: if there are more partitions, some share a task."""
    rows = batch.rows
    if max(batch.stream_time_ms, default=0) < task_count and (pc.max(rows["_part"]).as_py() or 0) < task_count:
        return batch
    tasks = pa.array(rows["_part"].to_numpy() % task_count)
    times: dict[int, int] = {}
    for partition, time in batch.stream_time_ms.items():
        times[partition % task_count] = max(time, times.get(partition % task_count, time))
    return ChangeBatch(rows.set_column(rows.column_names.index("_part"), "_part", tasks), times)


def in_tasks(plan: PhysicalPlan, inputs: Mapping[str, ChangeBatch]) -> dict[str, ChangeBatch]:
    """The batches, by source id, distributed over the plan's tasks: topics may have gained partitions since the plan
    was made."""
    counts = {source.id: source.task_count for source in plan.sources()}
    return {name: spread(batch, counts[name]) for name, batch in inputs.items()}


def partitions_share_tasks(plan: PhysicalPlan, partitions: Iterable[TopicPartition]) -> bool:
    """Whether rows of different partitions share a task because a topic has more partitions than the plan has tasks."""
    counts = Counter(at.topic for at in partitions)
    return any(counts[source.topic] > source.task_count for source in plan.sources())


def moved_keys(plan: PhysicalPlan, partitions: Iterable[TopicPartition]) -> dict[str, int]:
    """The topics whose partition count is not a multiple of the plan's task count, with that partition count. Producers
    may now write a key to another partition, and its rows then no longer meet its state."""
    counts = Counter(at.topic for at in partitions)
    sources = _sources_of_state(plan.root, below_state=False)
    return {each.topic: counts[each.topic] for each in sources if counts[each.topic] % each.task_count}


def _sources_of_state(step: Step, *, below_state: bool) -> list[Source]:
    """The sources whose partitions decide which task has the state of a key: no step repartitions their rows before
    that state."""
    if isinstance(step, Source):
        return [step] if below_state else []
    below = (below_state or step.stateful) and not step.rekeys
    return [source for child in step.inputs for source in _sources_of_state(child, below_state=below)]


def changelog_partition_count(plan: PhysicalPlan) -> int:
    """Enough partitions for the tasks of every step; the state of task n goes to partition n."""
    return max(step.task_count for step in plan.steps())


def is_stateful(plan: PhysicalPlan) -> bool:
    return any(step.stateful for step in plan.steps())


def needs_time_order(plan: PhysicalPlan) -> bool:
    """Whether rows of different source partitions can reach the same task or sink partition, so that their order by
    time matters."""
    if len(plan.sources()) > 1 or any(step.rekeys for step in plan.steps()):
        return True
    if not isinstance(plan.root, Sink):
        return True
    root = plan.root
    return any(source.partition_count != root.partition_count or _moves(source, root) for source in plan.sources())


def _moves(source: Source, sink: Sink) -> bool:
    """Whether a row may be written to another partition than it was read from, because its key has other bytes."""
    before, after = source.schema.key, sink.schema.key
    if not before and not after:
        return False
    bare = source.key_format == sink.key_format and not sink.key_format.wrap_single
    return not (bare and len(before) == len(after) == 1 and before[0].type == after[0].type)
